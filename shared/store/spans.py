"""Spans: rows of one session that PostgreSQL's search finds by one signature.

A span begins with a row and takes up the rows that follow, as long as its signature is not too full and of the usual size at
most. Its signature begins small and is made anew, larger, when it is full; for that all rows of the span are needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.store.grams import grams_of
from shared.store.signature import USUAL, Signature, size_for
from shared.value import value

ROWS = 100  # from the first row of a span to its last, at most: a hit reads all of them


@value
class RowSpan:
    """Some rows of a session and what they are found by."""

    session_id: str
    first_n: int
    last_n: int
    signature: Signature


def spans_of(session_id: str, rows: Iterable[tuple[int, str]], first_n: int | None = None) -> list[RowSpan]:
    """The spans of rows (number and text), the last of which may take up more. `first_n`: where the first span is to begin."""
    return _Growth(session_id, None, first_n).over((n, grams_of(text)) for n, text in rows) or []


def extended(span: RowSpan, rows: Iterable[tuple[int, str]]) -> list[RowSpan] | None:
    """The span with further rows, and the spans that follow it. None: it needs a larger signature, made of all its rows."""
    added = [(n, grams_of(text)) for n, text in rows]
    grams, last_n = set[str]().union(*(grams for _, grams in added)), max(n for n, _ in added)
    signature = span.signature.plus(grams)
    if signature is not None and last_n - span.first_n < ROWS:
        return [RowSpan(span.session_id, span.first_n, last_n, signature)]
    return _Growth(span.session_id, span, None).over(added)


class _Growth:
    """A session's last span while rows are added to it. Signatures are made when a span is complete, once for all its rows."""

    def __init__(self, session_id: str, span: RowSpan | None, first_n: int | None) -> None:
        self._session_id = session_id
        self._begins_at = first_n
        self._stored = span  # with these rows; how many grams they have, only its signature knows
        self._first_n, self._last_n = (span.first_n, span.last_n) if span else (0, 0)
        self._grams = set[str]()  # of the other rows

    def over(self, rows: Iterable[tuple[int, set[str]]]) -> list[RowSpan] | None:
        closed, is_open = list[RowSpan](), self._stored is not None
        for n, grams in rows:
            takes_up = is_open and n - self._first_n < ROWS and self._has_room(grams)
            if takes_up is None:
                return None
            if not takes_up:
                if self._grams:
                    closed.append(self._span())
                self._first_n, self._begins_at = (n if self._begins_at is None else self._begins_at), None
                self._stored, self._grams, is_open = None, set(), True
            self._grams |= grams
            self._last_n = n
        return [*closed, self._span()] if self._grams else closed

    def _has_room(self, grams: set[str]) -> bool | None:
        """Whether the span takes up a row with these grams. None: only with a larger signature, made of all its rows."""
        both = self._grams | grams
        if self._stored is None:
            return size_for(len(both)) <= USUAL
        if self._stored.signature.plus(both) is not None:
            return True
        return False if self._stored.signature.size >= USUAL else None

    def _span(self) -> RowSpan:
        signature = self._stored.signature.plus(self._grams) if self._stored else None
        return RowSpan(self._session_id, self._first_n, self._last_n, signature or Signature.of(self._grams))
