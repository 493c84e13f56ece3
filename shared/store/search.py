"""Search in what was said: an index beside the transcript, and the words of those who may ask.

No commit waits for the index. The housekeeper brings it up to date, some sessions per commit: `sessions.searched` says how
far, and moves in the transaction that adds the rows, so each is added once, whoever crashes and however many housekeepers
run. On PostgreSQL an indexer claims the sessions' rows; one that finds them claimed goes on with others.
What is not indexed yet is searched as it is. A row that was undone or deleted since is not found: the transcript decides.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

import orjson

from shared.errors import AlreadyDone
from shared.store.candidates import candidates
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.grams import folded, grams_for, grams_of, owner_gram
from shared.value import value

SESSIONS_DUE = 256  # that one look chooses from, at random: two housekeepers then rarely choose the same
SESSIONS_AT_ONCE = 32  # that one look indexes
SESSIONS_PER_COMMIT = {"sqlite": 8, "postgres": 32}  # SQLite: turns wait for its one writer meanwhile
ROWS_AT_ONCE = 200  # per commit: turns of the same sessions wait for it on PostgreSQL, all turns on SQLite
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
class _RowSpan:
    """Rows of a session that one commit indexes: those after `after`, up to `upto`."""

    id: str
    owner: str
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
    def search_index_postgres(
        self, *, sessions: str, session_id: list[str], n: list[int], grams: list[str]
    ) -> Step: ...
    def search_moved(self, *, session_id: str, after: int, upto: int) -> Step: ...
    def search_row(self, *, session_id: str, n: int, upto: int) -> Step: ...
    def search_row_grams(self, *, session_id: str, n: int, grams: str, upto: int) -> Step: ...
    def search_tail(self, *, owner: str, limit: int) -> Step: ...
    def search_tail_of_all(self, *, limit: int) -> Step: ...


sql = declared(SearchSql)


class Search:
    """Finds what was said. Rows that are not indexed yet are looked through as well, as far as that is quick."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
        async for page in candidates(self._database, grams, owner):
            self._sift(sessions, page.rows, terms, only)
            if len(sessions) >= limit:
                break
            complete &= page.complete
        hits = sorted(sessions.values(), key=lambda hit: -hit.said_at)
        return Found(tuple(hits[:limit]), complete)

    async def index(self) -> bool:
        """Index some of the sessions that have rows which cannot be found yet; whether there are more."""
        [due] = await self._database.read(sql.search_due(limit=SESSIONS_DUE))
        chosen = [_span(session) for session in random.sample(due, min(len(due), SESSIONS_AT_ONCE))]
        for spans in _portions(chosen, SESSIONS_PER_COMMIT[self._database.dialect]):
            await self._index(spans)
        return len(due) > len(chosen) or any(span.more for span in chosen)

    async def _index(self, spans: Sequence[_RowSpan]) -> None:
        sessions = orjson.dumps([{"id": span.id, "after": span.after, "upto": span.upto} for span in spans]).decode()
        [texts] = await self._database.read(sql.search_texts(sessions=sessions))
        owners = {span.id: span.owner for span in spans}
        rows = [
            _Indexed(row["session_id"], row["n"], row_grams(owners[row["session_id"]], row["text"])) for row in texts
        ]
        if self._database.dialect == "postgres":
            ids, numbers, grams = [r.session_id for r in rows], [r.n for r in rows], [r.grams for r in rows]
            await self._database.write(
                sql.search_index_postgres(sessions=sessions, session_id=ids, n=numbers, grams=grams)
            )
        else:
            await asyncio.gather(*(self._index_by_sqlite(span, rows) for span in spans))

    async def _index_by_sqlite(self, span: _RowSpan, rows: Sequence[_Indexed]) -> None:
        steps = list[Step]()
        for row in rows:
            if row.session_id == span.id:
                steps.append(sql.search_row(session_id=span.id, n=row.n, upto=span.upto))
                steps.append(sql.search_row_grams(session_id=span.id, n=row.n, grams=row.grams, upto=span.upto))
        with suppress(AlreadyDone):  # another housekeeper was faster
            # Moving comes first and locks the session: one that is deleted meanwhile gets no rows.
            moved = sql.search_moved(session_id=span.id, after=span.after, upto=span.upto)
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


def _span(session: Row) -> _RowSpan:
    after, count = session["searched"], session["message_count"]
    upto = min(count, after + ROWS_AT_ONCE)
    return _RowSpan(session["id"], session["owner"], after, upto, more=upto < count)


def _portions(spans: Sequence[_RowSpan], sessions: int) -> Iterator[list[_RowSpan]]:
    """What goes into one commit: so many sessions and ROWS_AT_ONCE rows at most."""
    portion, rows = list[_RowSpan](), 0
    for span in spans:
        if portion and (len(portion) == sessions or rows + span.upto - span.after > ROWS_AT_ONCE):
            yield portion
            portion, rows = [], 0
        portion.append(span)
        rows += span.upto - span.after
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
