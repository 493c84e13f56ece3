"""The text of a web page: what a person would read, without what browsers run or draw.

A stranger wrote the page, and it is read on the worker's event loop. So it is gone through once, from its beginning to its end:
Python's own parser takes minutes for 40 KB of `<a <a <a`.
"""

from __future__ import annotations

import codecs
import contextlib
import html
import re

_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "head"})
_BLOCKS = frozenset(
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
    ]
)
_CHARSET = re.compile(r"charset=[\"']?([\w-]{1,40})", re.ASCII)
_NO_CHARSETS = frozenset(
    {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
)  # Python's own
_TAG = re.compile(r"<(?:(!--)|(/?)([a-z][a-z0-9]*)|[!?/])", re.ASCII | re.IGNORECASE)
_ENDS = {name: re.compile(f"</{name}" + ("|<body" if name == "head" else ""), re.IGNORECASE) for name in _HIDDEN}
_SPACE = re.compile(r"\s+")


def page_text(body: bytes, content_type: str) -> str | None:
    """The words of a page, a line for each block. None where it is no text. Takes time in proportion to its length."""
    kind = content_type.partition(";")[0].strip().lower()
    if not (kind.startswith("text/") or kind.endswith(("json", "xml")) or not kind) or b"\0" in body[:1024]:
        return None
    found = _CHARSET.search(content_type) or _CHARSET.search(body[:2048].decode("ascii", "replace"))
    text = _decoded(body, found[1] if found else "utf-8")
    return _words(text) if kind in ("text/html", "application/xhtml+xml") else text.strip()


def _decoded(body: bytes, charset: str) -> str:
    try:
        if codecs.lookup(charset).name not in _NO_CHARSETS:
            return body.decode(charset, "replace")
    except LookupError:
        pass
    return body.decode("utf-8", "replace")


def _words(page: str) -> str:
    parts, at = list[str](), 0
    while (tag := _TAG.search(page, at)) is not None:
        parts.append(_said(page[at : tag.start()]))
        name = (tag[3] or "").lower()
        if name in _HIDDEN and not tag[2]:
            end = _ENDS[name].search(page, tag.end())
            at = end.start() if end is not None else len(page)
            continue
        if (end_at := page.find("-->" if tag[1] else ">", tag.end())) < 0:
            at = len(page) if tag[1] else tag.start()
            break
        parts.append("\n" if name in _BLOCKS else "")
        at = end_at + (3 if tag[1] else 1)
    lines = "".join([*parts, _said(page[at:])]).split("\n")
    return "\n".join(line for line in map(_one_line, lines) if line)


def _said(text: str) -> str:
    """Text between two tags. A line's end in it is a space to whoever reads the page."""
    with contextlib.suppress(ValueError):  # a character with thousands of digits
        text = html.unescape(text)
    return _SPACE.sub(" ", text)


def _one_line(text: str) -> str:
    return " ".join(text.split())
