"""The words of a web page, as a model reads them."""

from __future__ import annotations

import pytest

from workers.side.page_text import page_text


@pytest.mark.parametrize(
    ("kind", "is_text"),
    [
        ("text/plain", True),
        ("TEXT/Plain ; charset=utf-8", True),
        ("application/json", True),
        ("application/ld+json", True),
        ("application/xml", True),
        ("", True),
        ("; charset=utf-8", True),
        ("image/png", False),
        ("application/octet-stream", False),
        ("application/pdf", False),
    ],
)
def test_what_is_text_is_known_by_its_kind(kind: str, is_text: bool) -> None:
    assert page_text(b" some <b>words</b>\n", kind) == ("some <b>words</b>" if is_text else None)


@pytest.mark.parametrize("kind", ["text/html", "application/xhtml+xml", "Text/HTML; charset=utf-8"])
def test_of_a_page_the_words_are_read(kind: str) -> None:
    assert page_text(b"some <b>words</b>", kind) == "some words"


@pytest.mark.parametrize(("at", "is_text"), [(0, False), (1023, False), (1024, True)])
def test_bytes_that_no_text_begins_with_are_none_whatever_their_kind_says(at: int, is_text: bool) -> None:
    assert (page_text(b"x" * at + b"\0", "text/plain") is not None) is is_text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("grün".encode("latin-1"), "text/html; charset=latin-1"),
        ("grün".encode("latin-1"), "text/html; charset='ISO-8859-1'"),
        (b'<meta charset="latin-1">' + "grün".encode("latin-1"), "text/html"),
        (b'<meta charset="latin-1">' + "grün".encode(), "text/html; charset=utf-8"),
        ("grün".encode(), "text/html"),
        ("grün".encode(), "text/html; charset=idna"),
        ("grün".encode(), "text/html; charset=unicode-escape"),
        (b" " * 2048 + b'<meta charset="latin-1">' + "grün".encode(), "text/html"),
    ],
)
def test_the_charset_is_what_the_answer_says_else_what_the_page_begins_with_else_utf_8(body: bytes, kind: str) -> None:
    assert page_text(body, kind) == "grün"


def test_bytes_that_are_none_in_the_charset_cost_only_themselves() -> None:
    assert page_text(b"gr\xffn", "text/plain") == "gr\ufffdn"


@pytest.mark.parametrize(
    "name",
    [
        "p",
        "div",
        "br",
        "li",
        "ul",
        "ol",
        "tr",
        "table",
        "section",
        "article",
        "header",
        "footer",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "pre",
        "blockquote",
        "P",
        "Br",
    ],
)
def test_a_block_begins_and_ends_a_line(name: str) -> None:
    assert page_text(f"one<{name} class='x'>two</{name}>three".encode(), "text/html") == "one\ntwo\nthree"


@pytest.mark.parametrize("name", ["b", "a", "span", "td", "x1"])
def test_any_other_tag_is_left_out_and_breaks_no_word(name: str) -> None:
    assert page_text(f"o<{name} href=1>n</{name}>e".encode(), "text/html") == "one"


@pytest.mark.parametrize("name", ["script", "style", "noscript", "template", "svg", "head", "SCRIPT"])
def test_what_nobody_sees_is_left_out_up_to_its_end(name: str) -> None:
    said = f"one <{name} a='1'>hidden <b>too</b></{name} > two </{name}>three".encode()
    assert page_text(said, "text/html") == "one two three"
    assert page_text(f"one<{name}>hidden".encode(), "text/html") == "one"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("one<!-- a > b <p> -->two", "onetwo"),
        ("one<!---->two", "onetwo"),
        ("one<!doctype html>two<?php x ?>three", "onetwothree"),
        ("one<head>hidden<body>two", "onetwo"),
        ("one <b", "one <b"),
        ("one <!-- two", "one"),
        ("1 < 2 &amp; 3 > 2", "1 < 2 & 3 > 2"),
        ("a\t b\n\n c<br><br>&nbsp;d ", "a b c\nd"),
        ("<b>x</b>", "x"),
        ("</b>x", "x"),
        ("", ""),
    ],
)
def test_markup_ends_where_a_reader_would_say_so(page: str, words: str) -> None:
    assert page_text(page.encode(), "text/html") == words
