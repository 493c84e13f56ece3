"""Rows that may contain what was asked for, newest first, a page at a time, at a cost that has a bound.

Both databases give rows in order and stop where one stops reading, so a common word costs no more than a rare one. SQLite's
FTS5 goes from row to row that has the grams. PostgreSQL looks through the owner's signatures, the last changed first: about a
microsecond for each, which stands for 25 to 50 rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from shared.codec import encode_text
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.grams import owner_gram
from shared.store.signature import masks
from shared.store.spans import ROWS
from shared.value import value

PAGE, PAGES = 100, 20  # SQLite: rows that have the grams
SPANS = (10, 40, 150, 200)  # PostgreSQL: spans per page that have the bits of the grams
LAST = 2**62


@value
class Page:
    """Some of the rows that may match, newest first."""

    rows: list[Row]
    complete: bool = True  # False on the last page: there may be more that nobody looks at


class CandidatesSql(Protocol):
    """The statements of candidates.sql, with the values that each needs."""

    def search_candidates(self, *, query: str, owner: str | None, before: int, limit: int) -> Step: ...
    def spans_of_owner(self, *, masks: list[str], owner: str, before: int, limit: int) -> Step: ...
    def spans_of_all(self, *, masks: list[str], before: int, limit: int) -> Step: ...
    def rows_of_spans(self, *, spans: str, owner: str | None, plain: str | None, rows: int) -> Step: ...


sql = declared(CandidatesSql)


async def candidates(
    database: Database, grams: set[str], owner: str | None, terms: Sequence[str]
) -> AsyncIterator[Page]:
    """The rows of `owner`, or of all, that have all the grams, and some that have not. Rows without one of the (folded) terms
    may be left out."""
    if database.dialect == "postgres":
        pages = _from_postgres(database, grams, owner, _plain(terms))
    else:
        pages = _from_sqlite(database, sorted(grams if owner is None else {*grams, owner_gram(owner)}), owner)
    async for page in pages:
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


async def _from_postgres(
    database: Database, grams: set[str], owner: str | None, plain: str | None
) -> AsyncIterator[Page]:
    # A text with two characters of Chinese in a row has both: more bits, so fewer signatures that have them by chance.
    characters = {character for gram in grams if len(gram) == 2 and gram[0] != "^" for character in gram}
    wanted = [str(mask) for mask in masks(grams | characters)]
    before = LAST
    for limit in SPANS:
        if owner is None:
            query = sql.spans_of_all(masks=wanted, before=before, limit=limit)
        else:
            query = sql.spans_of_owner(masks=wanted, owner=owner, before=before, limit=limit)
        [spans] = await database.read(query)
        if not spans:
            return
        [rows] = await database.read(sql.rows_of_spans(spans=encode_text(spans), owner=owner, plain=plain, rows=ROWS))
        more = len(spans) == limit
        yield Page(rows, complete=not more or limit != SPANS[-1])
        if not more:
            return
        before = spans[-1]["place"]


def _plain(terms: Sequence[str]) -> str | None:
    """The longest term that is ASCII, which a text in ASCII contains as it is, or with capital letters."""
    return max((term for term in terms if term.isascii() and " " not in term), key=len, default=None)
