"""A long text becomes pieces that each stand alone, and nothing of it is lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.address import Address
from shared.messages import Media, Reply
from shared.platforms.facts import Limit, utf16_units
from shared.platforms.telegram import FACTS
from workers.delivery.parts import in_parts
from workers.delivery.split import rest_of, split

LIMIT = FACTS.text_limit or Limit(0)
SMALL = Limit(60, utf16_units)
_NUMBER = re.compile(r"[ \n]\((\d+)/(\d+)\)$")
_FENCE = re.compile(r" {0,3}`{3,}")


def bare(pieces: list[str]) -> list[str]:
    """The pieces without their numbers, which must be right."""
    if len(pieces) == 1:
        return pieces
    for i, piece in enumerate(pieces, 1):
        found = _NUMBER.search(piece)
        assert found is not None and (int(found[1]), int(found[2])) == (i, len(pieces))
    return [_NUMBER.sub("", piece) for piece in pieces]


def test_M1_a_text_as_long_as_the_limit_is_one_piece_without_a_number() -> None:
    assert split("x" * 60, SMALL) == ["x" * 60]
    assert len(split("x" * 61, SMALL)) == 2
    assert split("", SMALL) == [""]


def test_M2_every_word_is_preserved_and_every_piece_fits() -> None:
    words = [f"word{n}" + "o" * (n % 13) for n in range(300)]
    pieces = split(" ".join(words), SMALL)
    assert [word for piece in bare(pieces) for word in piece.split()] == words
    assert all(utf16_units(piece) <= 60 for piece in pieces)


def test_M3_a_code_block_is_closed_and_opened_again_with_its_language() -> None:
    code = "\n".join(f"    line_{n} = {n}" for n in range(20))
    pieces = split(f"Look:\n\n```python\n{code}\n```\nDone.", SMALL)
    assert len(pieces) > 3 and all(utf16_units(piece) <= 60 for piece in pieces)
    for piece in bare(pieces):
        fences = [line for line in piece.split("\n") if _FENCE.match(line)]
        assert len(fences) % 2 == 0
        assert set(fences[::2]) <= {"```python"} and set(fences[1::2]) <= {"```"}
    lines = [line for piece in bare(pieces) for line in piece.split("\n") if line.startswith("    ")]
    assert lines == code.split("\n")


@pytest.mark.parametrize("mark", ["`" * 3, "`" * 12])
def test_a_code_block_that_nobody_closed_is_closed_in_its_last_piece_which_still_fits(mark: str) -> None:
    for length in range(30, 130):
        pieces = split(f"{mark}\n{'a' * length}", SMALL)
        assert all(utf16_units(piece) <= 60 for piece in pieces), length
        assert all(piece.count(mark) == 2 for piece in pieces) or len(pieces) == 1


def test_a_text_is_cut_between_paragraphs_rather_than_lines_rather_than_words() -> None:
    assert bare(split("a" * 30 + "\n\n" + "b b\nb" + "b" * 40, SMALL))[0] == "a" * 30
    assert bare(split("a" * 30 + "\n" + "b b " + "b" * 40, SMALL))[0] == "a" * 30
    assert bare(split("a" * 30 + " " + "b" * 40, SMALL))[0] == "a" * 30
    assert bare(split("a a\n\n" + "b" * 70, SMALL))[0] == ("a a\n\n" + "b" * 70)[:49]  # too early a place to cut


@pytest.mark.parametrize("cut", ["\n\n", "\n", " "])
def test_a_text_is_cut_at_the_last_good_place_that_fits(cut: str) -> None:
    """A piece of 60 has room for 49 characters of text beside its number."""
    for length in range(42, 50 - len(cut) + 1):
        first = bare(split("a" * 40 + " " + "a" * (length - 41) + cut + "b" * 80, SMALL))[0]
        assert first == "a" * 40 + " " + "a" * (length - 41)


def test_characters_of_two_units_count_as_two_and_are_not_cut_in_half() -> None:
    pieces = split("🙂" * 5000, LIMIT)
    assert "".join(bare(pieces)) == "🙂" * 5000 and len(pieces) == 3
    assert all(len(piece.encode("utf-16-le")) // 2 <= 4096 for piece in pieces)


def test_inline_code_is_not_torn_apart_where_that_can_be_helped() -> None:
    pieces = bare(split("x" * 35 + " `code that goes on` and more text after it", SMALL))
    assert pieces[0] == "x" * 35 and "`code that goes on`" in pieces[1]


def test_a_code_block_does_not_begin_empty_at_the_end_of_a_piece() -> None:
    pieces = bare(split("x" * 36 + "\n```py\n" + "y" * 40 + "\n```", SMALL))
    assert pieces[0] == "x" * 36 and pieces[1].startswith("```py\ny")


def test_a_number_behind_a_code_block_stands_on_its_own_line() -> None:
    first = split("```\n" + "a\n" * 60 + "```", SMALL)[0]
    assert re.search(r"\n```\n\(1/\d\)$", first)


def test_a_very_long_text_is_cut_in_time_that_grows_with_it_only() -> None:
    text = "some words, then a line\n" * 200_000
    assert len(split(text, LIMIT)) > 1000  # minutes, were every look at all of it


@pytest.mark.parametrize("length", range(20, 50))
def test_a_piece_that_ends_at_a_space_fits_when_nothing_leaves_room_to_spare(length: int) -> None:
    """From 100 pieces on, the numbers are as long as the room that is kept for them; so is what closes a code block."""
    pieces = split("```\n" + " ".join(["w" * length] * 400) + "\n```", SMALL)
    assert 100 <= len(pieces) < 1000
    assert max(map(utf16_units, pieces)) <= SMALL.units


def test_more_than_999_pieces_have_longer_numbers_and_still_fit() -> None:
    pieces = split("ab " * 20_000, Limit(50))
    assert len(pieces) > 999 and all(len(piece) <= 50 for piece in pieces)
    assert "".join(bare(pieces)).replace(" ", "") == "ab" * 20_000


ALPHABET = st.sampled_from(
    ["a", "b", " ", "\n", "`x`", "\n```\n", "\n````\n", "\n```py\n", "🙂", "word ", "\n\n", "~", "é", "    "]
)


@given(st.lists(ALPHABET, max_size=200).map("".join), st.integers(40, 90))
def test_no_text_makes_a_piece_that_is_too_long_or_loses_a_character(text: str, units: int) -> None:
    pieces = split(text, Limit(units, utf16_units))
    assert all(utf16_units(piece) <= units for piece in pieces)
    joined = "".join("".join(bare(pieces)).split())
    assert _letters(joined) == _letters(text)


def _letters(text: str) -> str:
    """What is neither white space nor fence, nor the language of one."""
    return "".join(re.sub(r"`+(py)?", "", text).split())


def test_a_reply_becomes_one_part_for_each_message_that_telegram_will_show() -> None:
    file = Media("https://x/a.png", "image/png")
    parts = in_parts("telegram", [Reply("x" * 5000, (file,)), Reply(" \n"), Reply("end")])
    assert [len(part.text) for part in parts] == [4091, 921, 0, 3]
    assert [part.media for part in parts] == [(), (), (file,), ()]


def test_a_reply_to_another_chat_is_split_as_that_platform_wants_and_only_its_first_piece_edits() -> None:
    there, file = Address("telegram", "", "-5", "12"), Media("https://x/a.png", "image/png")
    parts = in_parts("api", [Reply("x" * 5000, (file,), to=there, edits="9"), Reply("y" * 5000)])
    assert [len(part.text) for part in parts] == [4091, 921, 0, 5000]
    assert [part.to for part in parts] == [there, there, there, None]
    assert [part.edits for part in parts] == ["9", None, None, None]


@pytest.mark.parametrize("platform", ["webhook", "api", "local"])
def test_other_platforms_take_a_reply_as_it_is(platform: str) -> None:
    replies = (Reply("x" * 50_000), Reply(""))
    assert in_parts(platform, replies) == replies


@pytest.mark.parametrize(
    ("text", "shown", "rest"),
    [
        ("one two three", "one two", "three"),
        ("one two three", "one tw", "two three"),  # a word is not cut in two
        ("one two", "one two", ""),
        ("one two\n", "one two", ""),
        ("one two", "", "one two"),
        ("so:\n```py\na = 1\nb = 2\n```\ndone", "so:\n```py\na = 1\n", "```py\nb = 2\n```\ndone"),
        ("so:\n```py\na = 1\n```\ndone", "so:\n```py\na = 1\n```\n", "done"),
        ("x" * 100, "x" * 60, "x" * 40),  # nobody would want all of that again
    ],
)
def test_the_rest_of_a_text_that_is_shown_in_part_begins_with_a_word_and_opens_its_code_again(
    text: str, shown: str, rest: str
) -> None:
    assert text.startswith(shown)
    assert rest_of(text, len(shown)) == rest
