"""Markdown as models write it, taken apart: for platforms whose own markup has other marks, or none.

What is no valid Markdown stays as it was written. The language of a block of code is the only word that is dropped.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from shared.value import value
from workers.delivery.inline import BOLD, BOLD2, ITALIC, ITALIC2, SPOILER, STRIKE, Span, Spans

DEPTH = 6
FENCE = re.compile(r" {0,3}(`{3,}+)[ \t]*+([\w+#.-]*+)[^`\n]*+")
BULLET = re.compile(r"( *)[*+-] +(?=\S)")
QUOTE = re.compile(r"> ?")
_HEADING = re.compile(r"#{1,6} +")
_LINK = re.compile(r"\[(?P<label>[^\[\]\n]+)\]\((?P<url>https?://[^\s()<>\"]+(?:\([^\s()<>\"]*\)[^\s()<>\"]*)*)\)")
_PAIRS = (BOLD, BOLD2, STRIKE, SPOILER, ITALIC, ITALIC2)


class Style(Enum):
    """How a stretch of text looks. Platforms that lack one show the text plain."""

    BOLD = auto()
    ITALIC = auto()
    STRIKE = auto()
    SPOILER = auto()
    CODE = auto()
    LINK = auto()


_STYLES = {
    "b": Style.BOLD,
    "b2": Style.BOLD,
    "s": Style.STRIKE,
    "spoiler": Style.SPOILER,
    "i": Style.ITALIC,
    "i2": Style.ITALIC,
}


class BlockForm(Enum):
    """What a line of text is part of."""

    TEXT = auto()
    HEADING = auto()
    BULLET = auto()
    QUOTE = auto()
    CODE = auto()


@value
class Styled:
    """Words with a style. A link has the address that it leads to."""

    style: Style
    inner: tuple[str | Styled, ...]
    url: str = ""


Inline = str | Styled


@value
class Line:
    """A line of text, or a whole block of code."""

    form: BlockForm
    content: tuple[Inline, ...]
    before: str = ""  # a bullet's indentation, a quotation's mark


def parse(markdown: str) -> list[Line]:
    """The lines of a text, in order."""
    lines, done, at = markdown.split("\n"), list[Line](), 0
    while at < len(lines):
        if fence := FENCE.fullmatch(lines[at]):
            end = end_of_code(lines, at + 1, fence[1])
            more = (
                fence[0].strip(" `\t").removeprefix(fence[2]).strip()
            )  # behind the language: seldom, but somebody wrote it
            done.append(Line(BlockForm.CODE, ("\n".join([*([more] if more else []), *lines[at + 1 : end]]),)))
            at = end + 1
        else:
            done.append(_line(lines[at]))
            at += 1
    return done


def _line(line: str) -> Line:
    if (heading := heading_in(line)) is not None:
        return Line(BlockForm.HEADING, _inline(heading, DEPTH))
    if quote := QUOTE.match(line):
        return Line(BlockForm.QUOTE, _inline(line[quote.end() :], DEPTH), quote[0])
    if bullet := BULLET.match(line):
        return Line(BlockForm.BULLET, _inline(line[bullet.end() :], DEPTH), bullet[1])
    return Line(BlockForm.TEXT, _inline(line, DEPTH))


def _inline(text: str, depth: int) -> tuple[Inline, ...]:
    if not depth:
        return (text,)
    done, at = list[Inline](), 0
    for span in spans(text):
        done += [text[at : span.start], _styled(span, depth - 1)]
        at = span.end
    return tuple(piece for piece in (*done, text[at:]) if piece != "")


def _styled(span: Span, depth: int) -> Styled:
    if span.kind == "code":
        return Styled(Style.CODE, (span.inner,))
    if span.kind == "link":
        return Styled(Style.LINK, _inline(span.inner, depth), span.url)
    return Styled(_STYLES[span.kind], _inline(span.inner, depth))


def spans(line: str) -> Spans:
    """The styled pieces of a line: kinds code, link, and those of `Pair`."""
    return Spans(line, _PAIRS, _LINK)


def heading_in(line: str) -> str | None:
    """The words of a heading, without the marks at its end; None for any other line."""
    mark = _HEADING.match(line)
    if mark is None:
        return None
    words = line[mark.end() :]
    return words.rstrip(" #") or words[:1] or (" " if mark[0].endswith("  ") else None)


def end_of_code(lines: list[str], start: int, mark: str) -> int:
    """The number of the line that closes a block of code, or of the line behind the last."""
    for n in range(start, len(lines)):
        if len(closing := lines[n].strip()) >= len(mark) and not closing.strip("`"):
            return n
    return len(lines)
