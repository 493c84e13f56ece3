"""Spans: rows of one session that PostgreSQL's search finds by one signature.

A span begins with a row and takes up the rows that follow, as long as its signature is not too full and of the usual size at
most. Its signature begins small and is made anew, larger, when it is full; for that all rows of the span are needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.store.grams import grams_of
from shared.store.signature import USUAL, Signature
from shared.value import value

ROWS = 100  # from the first row of a span to its last, at most: a hit reads all of them


@value
class Span:
    """Some rows of a session and what they are found by."""

    session_id: str
    first_n: int
    last_n: int
    signature: Signature


def spans_of(session_id: str, rows: Iterable[tuple[int, str]], first_n: int | None = None) -> list[Span]:
    """The spans of rows (number and text), the last of which may take up more. `first_n`: where the first span is to begin."""
    return _Growth(session_id, None, first_n).over(rows) or []


def extended(span: Span, rows: Iterable[tuple[int, str]]) -> list[Span] | None:
    """The span with further rows, and the spans that follow it. None: it needs a larger signature, made of all its rows."""
    return _Growth(span.session_id, span, None).over(rows)


class _Growth:
    """A session's last span while rows are added to it."""

    def __init__(self, session_id: str, span: Span | None, first_n: int | None) -> None:
        self._session_id = session_id
        self._first_n = first_n
        self._span = span
        self._grams: set[str] | None = None  # of all rows of the span; None: some are known by its signature only

    def over(self, rows: Iterable[tuple[int, str]]) -> list[Span] | None:
        given, closed = self._span, list[Span]()
        for n, text in rows:
            grams = grams_of(text)
            if self._needs_all_rows(n, grams):
                return None
            if not self._takes_up(n, grams):
                if self._span is not None and self._span is not given:
                    closed.append(self._span)
                self._begin(n, grams)
        if self._span is not None and self._span is not given:
            closed.append(self._span)
        return closed

    def _needs_all_rows(self, n: int, grams: set[str]) -> bool:
        span = self._span
        if span is None or self._grams is not None or n - span.first_n >= ROWS:
            return False
        return span.signature.size < USUAL and span.signature.plus(grams) is None

    def _takes_up(self, n: int, grams: set[str]) -> bool:
        """Add a row to the span, if there is one with room for it."""
        span = self._span
        if span is None or n - span.first_n >= ROWS:
            return False
        signature = span.signature.plus(grams)
        if signature is None and self._grams is not None:
            larger = Signature.of(self._grams | grams)
            signature = larger if larger.size <= USUAL else None
        if signature is None:
            return False
        self._span = Span(span.session_id, span.first_n, n, signature)
        if self._grams is not None:
            self._grams |= grams
        return True

    def _begin(self, n: int, grams: set[str]) -> None:
        first, self._first_n = (n if self._first_n is None else self._first_n), None
        self._span, self._grams = Span(self._session_id, first, n, Signature.of(grams)), grams
