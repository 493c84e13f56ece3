"""Search in what was said: an index beside the transcript, and the words of those who may ask.

No commit waits for the index. The housekeeper brings it up to date, some sessions per commit: `sessions.searched` (SQLite) or
`sessions.indexed` (PostgreSQL) says how far, and moves in the transaction that adds to the index, so each row is added once,
whoever crashes and however many housekeepers run. On PostgreSQL an indexer claims the sessions' rows; one that finds them
claimed goes on with others. A session that moved on since its rows were read gets nothing in that look: its rows may have lost
their words. SQLite indexes the grams of each row, PostgreSQL has signatures of several rows (spans.py).
What is not indexed yet is searched as it is. A row that was undone or deleted since is not found: the transcript decides.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import orjson

from shared.errors import AlreadyDone
from shared.store.candidates import candidates
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.grams import folded, grams_for, grams_of, owner_gram
from shared.store.signature import SIZES, Signature
from shared.store.spans import RowSpan, extended, spans_of
from shared.value import value

SESSIONS_DUE = 256  # that one look chooses from, at random: two housekeepers then rarely choose the same
SESSIONS_AT_ONCE = 32  # that one look indexes
SESSIONS_PER_COMMIT = {"sqlite": 8, "postgres": 32}  # SQLite: turns wait for its one writer meanwhile
ROWS_AT_ONCE = 200  # per commit: turns of the same sessions wait for it on PostgreSQL, all turns on SQLite
OLDER_ROWS_AT_ONCE = 1000  # of an older version's index that one look deletes
TAIL = 2000  # rows not indexed yet that one search reads
TERMS = 8
BEFORE, AFTER = 40, 100  # characters of a snippet
_TERM = re.compile(r"[\"“”„]([^\"“”„]*)[\"“”„]|(\S+)")


@value
class Hit:
    """A session where the words were found: its newest such row, and how many were seen."""

    session_id: str
    session_key: str
    title: str | None
    updated_at: int
    n: int
    role: str
    said_at: int
    snippet: str
    rows: int = 1


@value
class Found:
    """The sessions that say the words, newest first."""

    hits: tuple[Hit, ...]
    complete: bool = True  # False: older rows are not indexed yet, or the words are too common to look at all


@value
class _RowRange:
    """Rows of a session that one commit indexes: those after `after`, up to `upto`."""

    id: str
    owner: str
    version: int  # of the session, from before the rows are read
    after: int
    upto: int
    more: bool  # the session has further rows


@value
class _Indexed:
    """A row as the index has it."""

    session_id: str
    n: int
    grams: str


class SearchSql(Protocol):
    """The statements of search.sql, with the values that each needs."""

    def search_due(self, *, limit: int) -> Step: ...
    def search_texts(self, *, sessions: str) -> Step: ...
    def search_last_spans(self, *, sessions: str) -> Step: ...
    def search_index_postgres(
        self,
        *,
        sessions: str,
        session_id: list[str],
        first_n: list[int],
        last_n: list[int],
        size_class: list[int],
        bits: list[str],
    ) -> Step: ...
    def drop_older_rows(self, *, limit: int) -> Step: ...
    def search_moved(self, *, session_id: str, version: int, after: int, upto: int) -> Step: ...
    def search_row(self, *, session_id: str, version: int, n: int, upto: int) -> Step: ...
    def search_row_grams(self, *, session_id: str, version: int, n: int, grams: str, upto: int) -> Step: ...
    def search_tail(self, *, owner: str, limit: int) -> Step: ...
    def search_tail_of_all(self, *, limit: int) -> Step: ...


sql = declared(SearchSql)


class Search:
    """Finds what was said. Rows that are not indexed yet are looked through as well, as far as that is quick."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_older_index_gone = database.dialect != "postgres"

    async def find(
        self, words: str, owner: str | None, limit: int = 10, only: Callable[[str], bool] = lambda _: True
    ) -> Found | None:
        """The sessions of `owner` that say all the words, newest first; None where there is nothing to look for.

        `only` chooses by session key. Without an owner, everybody's sessions: for an operator.
        """
        terms = [term for a, b in _TERM.findall(words) if (term := folded(a or b))][:TERMS]
        grams = set[str]().union(*map(grams_for, terms))
        if not grams:
            return None
        rows, complete = await self._tail(owner)
        sessions: dict[str, Hit] = {}
        self._sift(sessions, sorted(rows, key=lambda row: -row["created_at"]), terms, only)
        async for page in candidates(self._database, grams, owner, terms):
            self._sift(sessions, page.rows, terms, only)
            if len(sessions) >= limit:
                break
            complete &= page.complete
        hits = sorted(sessions.values(), key=lambda hit: -hit.said_at)
        return Found(tuple(hits[:limit]), complete)

    async def index(self) -> bool:
        """Index some of the sessions that have rows which cannot be found yet; whether there are more."""
        [due] = await self._database.read(sql.search_due(limit=SESSIONS_DUE))
        some = random.sample(due, min(len(due), SESSIONS_AT_ONCE))
        # A search reads what was indexed last first, and stops when it has enough: that should be what was said last.
        chosen = [_range(session) for session in sorted(some, key=lambda session: session["updated_at"])]
        index = self._index_by_postgres if self._database.dialect == "postgres" else self._index_by_sqlite
        for ranges in _portions(chosen, SESSIONS_PER_COMMIT[self._database.dialect]):
            await index(ranges)
        if not due and not self._is_older_index_gone:
            return await self._drop_older_index()
        return len(due) > len(chosen) or any(range.more for range in chosen)

    async def _index_by_postgres(self, ranges: Sequence[_RowRange]) -> None:
        """Make spans of the rows. Who else changes a session's last span moves the session on, so this writes nothing then."""
        sessions = _listed(ranges)
        texts, last = await self._database.read(
            sql.search_texts(sessions=sessions), sql.search_last_spans(sessions=sessions)
        )
        opened = {row["session_id"]: _stored_span(row) for row in last}
        added = _by_session(texts)
        grown = {id: extended(opened[id], rows) if id in opened else spans_of(id, rows) for id, rows in added.items()}
        if full := [replace(r, after=opened[r.id].first_n - 1) for r in ranges if grown.get(r.id, ()) is None]:
            [texts] = await self._database.read(sql.search_texts(sessions=_listed(full)))
            for id, rows in _by_session(texts).items():
                grown[id] = spans_of(id, rows, opened[id].first_n)
        spans = [span for range in ranges for span in grown.get(range.id) or ()]
        await self._database.write(
            sql.search_index_postgres(
                sessions=sessions,
                session_id=[span.session_id for span in spans],
                first_n=[span.first_n for span in spans],
                last_n=[span.last_n for span in spans],
                size_class=[1 + SIZES.index(span.signature.size) for span in spans],
                bits=[str(span.signature) for span in spans],
            )
        )

    async def _drop_older_index(self) -> bool:
        """Free some space of the index that an older version made, now that all it has is found without it; whether there is more."""
        [rows] = await self._database.write(sql.drop_older_rows(limit=OLDER_ROWS_AT_ONCE))
        self._is_older_index_gone = len(rows) < OLDER_ROWS_AT_ONCE
        return not self._is_older_index_gone

    async def _index_by_sqlite(self, ranges: Sequence[_RowRange]) -> None:
        [texts] = await self._database.read(sql.search_texts(sessions=_listed(ranges)))
        owners = {range.id: range.owner for range in ranges}
        rows = [
            _Indexed(row["session_id"], row["n"], row_grams(owners[row["session_id"]], row["text"])) for row in texts
        ]
        await asyncio.gather(*(self._index_session(range, rows) for range in ranges))

    async def _index_session(self, range: _RowRange, rows: Sequence[_Indexed]) -> None:
        steps, id, version, upto = list[Step](), range.id, range.version, range.upto
        for row in rows:
            if row.session_id == id:
                steps.append(sql.search_row(session_id=id, version=version, n=row.n, upto=upto))
                steps.append(sql.search_row_grams(session_id=id, version=version, n=row.n, grams=row.grams, upto=upto))
        with suppress(AlreadyDone):  # another housekeeper was faster
            # Moving comes first and locks the session: one that is deleted or changed meanwhile gets no rows.
            moved = sql.search_moved(session_id=id, version=version, after=range.after, upto=upto)
            await self._database.write(moved, *steps)

    async def _tail(self, owner: str | None) -> tuple[list[Row], bool]:
        [rows] = await self._database.read(
            sql.search_tail_of_all(limit=TAIL) if owner is None else sql.search_tail(owner=owner, limit=TAIL)
        )
        return rows, len(rows) < TAIL

    def _sift(
        self, sessions: dict[str, Hit], rows: Sequence[Row], terms: Sequence[str], only: Callable[[str], bool]
    ) -> None:
        """Keep what really contains the terms: a session's newest row, and the count."""
        for row in rows:
            text = folded(row["text"])
            if not all(term in text for term in terms) or not only(row["session_key"]):
                continue
            id, known = row["session_id"], sessions.get(row["session_id"])
            count = known.rows + 1 if known else 1
            if known is not None and known.n >= row["n"]:
                row = {**row, "n": known.n, "role": known.role, "created_at": known.said_at}
                shown = known.snippet
            else:
                shown = snippet(row["text"], terms)
            about = (row["session_key"], row["title"], row["updated_at"], row["n"], row["role"], row["created_at"])
            sessions[id] = Hit(id, *about, shown, count)


def row_grams(owner: str, text: str) -> str:
    """What a row of an owner's session is found by, as the index keeps it."""
    return " ".join((owner_gram(owner), *grams_of(text)))


def _range(session: Row) -> _RowRange:
    after, count = session["indexed"], session["message_count"]
    upto = min(count, after + ROWS_AT_ONCE)
    return _RowRange(session["id"], session["owner"], session["version"], after, upto, more=upto < count)


def _listed(ranges: Sequence[_RowRange]) -> str:
    listed = [{"id": one.id, "version": one.version, "after": one.after, "upto": one.upto} for one in ranges]
    return orjson.dumps(listed).decode()


def _by_session(texts: Sequence[Row]) -> dict[str, list[tuple[int, str]]]:
    """Number and text of rows, by session."""
    found = dict[str, list[tuple[int, str]]]()
    for row in texts:
        found.setdefault(row["session_id"], []).append((row["n"], row["text"]))
    return found


def _stored_span(row: Row) -> RowSpan:
    return RowSpan(row["session_id"], row["first_n"], row["last_n"], Signature(len(row["bits"]), int(row["bits"], 2)))


def _portions(ranges: Sequence[_RowRange], sessions: int) -> Iterator[list[_RowRange]]:
    """What goes into one commit: so many sessions and ROWS_AT_ONCE rows at most."""
    portion, rows = list[_RowRange](), 0
    for range in ranges:
        if portion and (len(portion) == sessions or rows + range.upto - range.after > ROWS_AT_ONCE):
            yield portion
            portion, rows = [], 0
        portion.append(range)
        rows += range.upto - range.after
    if portion:
        yield portion


def snippet(text: str, terms: Sequence[str]) -> str:
    """The part of a text around the first of the terms, which is marked «so»."""
    line = " ".join(text.split())
    at, length = _place(line, terms)
    start, end = max(at - BEFORE, 0), at + length + AFTER
    around = f"{line[start:at]}«{line[at : at + length]}»{line[at + length : end]}"
    return f"{'…' if start else ''}{around}{'…' if end < len(line) else ''}"


def _place(line: str, terms: Sequence[str]) -> tuple[int, int]:
    """Where a term is in the line as it was written, which folding may have made longer or shorter."""
    compared = folded(line)
    at, term = min(((found, term) for term in terms if (found := compared.find(term)) >= 0), default=(0, ""))
    if len(compared) == len(line):
        return at, len(term)
    ends, length = [0], 0
    for char in line:
        length += len(folded(char)) if not char.isspace() else 1
        ends.append(length)
    start = max(n for n, end in enumerate(ends) if end <= at)
    end = next((n for n, end in enumerate(ends) if end >= at + len(term)), len(line))
    return start, end - start
