"""The styled pieces of a line of Markdown, found in a time that grows with the line's length and no faster.

One pattern for all of it would look for the end of every mark that opens, up to the end of the line: 4,000 characters of "*a "
would cost a second. So the places where each mark can end are listed once for a line, and a mark that opens looks its end up.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from shared.value import value

_CANDIDATE = re.compile(r"[`\[!<*_~|]")  # what any piece begins with
_TICKS = re.compile(r"`+")


@value
class Pair:
    """A mark that opens and closes. Both patterns say what must stand around it; `closing` matches the place before it."""

    kind: str
    opening: re.Pattern[str]
    closing: re.Pattern[str]
    length: int


def pair(kind: str, opening: str, closing: str, length: int) -> Pair:
    return Pair(kind, re.compile(opening), re.compile(closing), length)


BOLD = pair("b", r"\*\*(?=\S)", r"(?<=\S)(?=\*\*)", 2)
BOLD2 = pair("b2", r"(?<!\w)__(?=\S)", r"(?<=\S)(?=__(?!\w))", 2)
STRIKE = pair("s", r"~~(?=\S)", r"(?<=\S)(?=~~)", 2)
SPOILER = pair("spoiler", r"\|\|(?=\S)", r"(?<=\S)(?=\|\|)", 2)
ITALIC = pair("i", r"(?<![\w*])\*(?=[^\s*])", r"(?<=[^\s*])(?=\*(?![\w*]))", 1)
ITALIC2 = pair("i2", r"(?<!\w)_(?=[^\s_])", r"(?<=[^\s_])(?=_(?!\w))", 1)


@value
class Span:
    """A styled piece of a line. `inner` is what its marks enclose: code, a label, or more Markdown."""

    kind: str  # code, one of the other pattern's groups, or that of a pair
    start: int
    end: int
    inner: str
    url: str = ""


class Spans:
    """The pieces of one line. `other` is what has no marks of its own, such as links: a pattern whose groups name kinds, of
    which `label` comes with `url`."""

    def __init__(self, line: str, pairs: Sequence[Pair], other: re.Pattern[str]) -> None:
        self._line = line
        self._pairs = pairs
        self._other = other
        self._ends: dict[str, list[int]] = {}
        self._ticks: dict[int, list[int]] | None = None

    def __iter__(self) -> Iterator[Span]:
        at = 0
        while (candidate := _CANDIDATE.search(self._line, at)) is not None:
            span = self._at(candidate.start())
            if span is not None:
                yield span
            at = span.end if span is not None else candidate.end()

    def _at(self, start: int) -> Span | None:
        """The piece that begins here, if one does."""
        if self._line[start] == "`":
            return self._code(start)
        if (found := self._other.match(self._line, start)) is not None:
            kind = found.lastgroup or ""
            if kind == "url":
                return Span("link", start, found.end(), found["label"], found["url"])
            return Span(kind, start, found.end(), found[kind])
        return next((span for pair in self._pairs if (span := self._marked(start, pair)) is not None), None)

    def _code(self, start: int) -> Span | None:
        """A run of ticks ends at the next run of the same length."""
        opening = _TICKS.match(self._line, start)
        if opening is None or self._line[start - 1 : start] == "`":
            return None
        if self._ticks is None:
            self._ticks = {}
            for run in _TICKS.finditer(self._line):
                self._ticks.setdefault(len(run[0]), []).append(run.start())
        size = len(opening[0])
        end = _first_from(self._ticks[size], opening.end())
        return Span("code", start, end + size, self._line[opening.end() : end]) if end is not None else None

    def _marked(self, start: int, pair: Pair) -> Span | None:
        opening = pair.opening.match(self._line, start)
        if opening is None:
            return None
        if pair.kind not in self._ends:
            self._ends[pair.kind] = _places(pair.closing, self._line)
        end = _first_from(self._ends[pair.kind], opening.end() + 1)
        inner = self._line[opening.end() : end]
        return Span(pair.kind, start, end + pair.length, inner) if end is not None else None


def _places(closing: re.Pattern[str], line: str) -> list[int]:
    return [found.start() for found in closing.finditer(line)]


def _first_from(places: list[int], least: int) -> int | None:
    at = bisect_left(places, least)
    return places[at] if at < len(places) else None
