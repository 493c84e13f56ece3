"""Rows that may contain what was asked for, newest first, a page at a time, at a cost that has a bound.

SQLite's FTS5 gives rows in order and stops where one stops reading, so a common word costs no more than a rare one.
PostgreSQL's GIN collects all rows before it sorts them. There the owner's newest rows are looked through first: what is
common is found among them, and what is not found among them is rare enough to be collected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.grams import owner_gram
from shared.value import value

PAGE, PAGES = 100, 20  # SQLite: rows that have the grams
LOOKS = (500, 4000, 8000)  # PostgreSQL: rows looked through; the last only where the words turn out to be common
COMMON = 1 / 128  # of the rows looked through: what is rarer is collected
ENOUGH = 300  # rows of one look: the next look goes on there
COLLECTED = 1000
LAST = 2**62


@value
class Page:
    """Some of the rows that may match, newest first."""

    rows: list[Row]
    complete: bool = True  # False on the last page: there may be more that nobody looks at


class CandidatesSql(Protocol):
    """The statements of candidates.sql, with the values that each needs."""

    def search_candidates(self, *, query: str, owner: str | None, before: int, limit: int) -> Step: ...
    def search_newest_postgres(self, *, query: str, owner: str, before: int, limit: int, enough: int) -> Step: ...
    def search_candidates_postgres(self, *, query: str, owner: str | None, before: int, limit: int) -> Step: ...


sql = declared(CandidatesSql)


async def candidates(database: Database, grams: set[str], owner: str | None) -> AsyncIterator[Page]:
    """The rows of `owner`, or of all, that have all the grams."""
    wanted = sorted(grams if owner is None else {*grams, owner_gram(owner)})
    pages = _from_postgres if database.dialect == "postgres" else _from_sqlite
    async for page in pages(database, wanted, owner):
        yield page


async def _from_sqlite(database: Database, grams: list[str], owner: str | None) -> AsyncIterator[Page]:
    query = " ".join(f'"{gram}"' for gram in grams)
    before = LAST
    for left in reversed(range(PAGES)):
        [rows] = await database.read(sql.search_candidates(query=query, owner=owner, before=before, limit=PAGE))
        more = len(rows) == PAGE
        yield Page(rows, complete=bool(left) or not more)
        if not more:
            return
        before = rows[-1]["place"]


async def _from_postgres(database: Database, grams: list[str], owner: str | None) -> AsyncIterator[Page]:
    query = " & ".join(f"'{gram}'" for gram in grams)  # grams are letters, digits and our own marks
    before = LAST
    for look, size in enumerate(LOOKS):
        if owner is None:
            break
        newest = sql.search_newest_postgres(query=query, owner=owner, before=before, limit=size, enough=ENOUGH)
        [rows] = await database.read(newest)
        common, last = len(rows) > size * COMMON, size == LOOKS[-1]
        yield Page(_there(rows), complete=not (common and last))
        if common and last:
            return
        if rows:
            before = rows[-1]["place" if len(rows) == ENOUGH else "looked"]
        if look and not common:
            break
    collected = sql.search_candidates_postgres(query=query, owner=owner, before=before, limit=COLLECTED)
    [rows] = await database.read(collected)
    yield Page(_there(rows), len(rows) < COLLECTED)


def _there(rows: list[Row]) -> list[Row]:
    """Without what was deleted or undone since it was indexed."""
    return [row for row in rows if row["text"] is not None and row["session_id"]]
