"""Looks through every table for an id that should be gone, whatever tables there are. For an operator: it reads all rows."""

from __future__ import annotations

import re
from collections.abc import Callable

from shared.codec import encode_text
from shared.escape import escape
from shared.store.database import Database
from shared.store.database.statements import Statement, Step
from shared.value import value

_PAGE = 1000
# What may stand beside an id that is one, and not a part of another.
_WORD = r"[0-9A-Za-z_]"
_TABLES = Statement(
    "every_table",
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'search_grams%'",
    "SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()",
)


@value
class Remains:
    """A table that still names the id, and in how many rows."""

    table: str
    rows: int


async def remains(database: Database, id: str, tell: Callable[[int, int], None]) -> list[Remains]:
    """The tables in whose texts the id still stands as a word of its own. `tell` hears how many tables are done, of how many."""
    spellings = {id, escape(id), encode_text(id)[1:-1]}  # as it is, in keys, in JSON
    word = re.compile("|".join(rf"(?<!{_WORD}){re.escape(text)}(?!{_WORD})" for text in spellings))
    [tables] = await database.read(Step(_TABLES, {}))
    found = []
    for done, table in enumerate(sorted(row["name"] for row in tables)):
        tell(done, len(tables))
        count = await _rows_with(database, table, word)
        if count:
            found.append(Remains(table, count))
    return found


async def _rows_with(database: Database, table: str, word: re.Pattern[str]) -> int:
    """Counted page by page. A row that is written meanwhile may be seen twice or not at all."""
    count, offset = 0, 0
    page = Statement("every_row", _select(table), _select(table))
    while True:
        [rows] = await database.read(Step(page, {"limit": _PAGE, "offset": offset}))
        count += sum(any(isinstance(v, str) and word.search(v) for v in row.values()) for row in rows)
        if len(rows) < _PAGE:
            return count
        offset += _PAGE


def _select(table: str) -> str:
    return f'SELECT * FROM "{table}" ORDER BY 1 LIMIT :limit OFFSET :offset'
