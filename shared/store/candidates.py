"""Rows that may contain what was asked for, newest first, a page at a time, at a cost that has a bound.

SQLite's FTS5 gives rows in order and stops where one stops reading, so a common word costs no more than a rare one.
PostgreSQL's GIN collects all rows before it sorts them. There the owner's newest rows are looked through first: what is
common is found among them, and what is not found among them is rare enough to be collected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from shared.store.database import Database, Row, step
from shared.store.grams import owner_gram

PAGE, PAGES = 100, 20  # SQLite: rows that have the grams
NEWEST, LOOKS = 1500, 3  # PostgreSQL: rows looked through, and how often where the words turn out to be common
COMMON = 50  # of the newest rows
COLLECTED = 1000
LAST = 2**62


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Row]
    complete: bool = True  # False on the last page: there may be more that nobody looks at


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
        [rows] = await database.read(step("search_candidates", query=query, owner=owner, before=before, limit=PAGE))
        more = len(rows) == PAGE
        yield Page(rows, complete=bool(left) or not more)
        if not more:
            return
        before = rows[-1]["place"]


async def _from_postgres(database: Database, grams: list[str], owner: str | None) -> AsyncIterator[Page]:
    query = " & ".join(f"'{gram}'" for gram in grams)  # grams are letters, digits and our own marks
    about = {"query": query, "owner": owner}
    before = LAST
    for left in reversed(range(LOOKS if owner is not None else 0)):
        [rows] = await database.read(step("search_newest_postgres", before=before, limit=NEWEST, **about))
        common = len(rows) > COMMON
        yield Page(rows, complete=bool(left) or not common)
        if common and not left:
            return
        before = rows[-1]["place"] if rows else before
        if not common:
            break
    [rows] = await database.read(step("search_candidates_postgres", before=before, limit=COLLECTED, **about))
    yield Page([row for row in rows if row["text"] is not None and row["session_id"]], len(rows) < COLLECTED)
