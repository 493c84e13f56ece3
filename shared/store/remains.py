"""Looks through every table for an id that should be gone, whatever tables there are. For an operator: it reads all rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import Any

from shared.codec import encode_text
from shared.escape import escape
from shared.store.database import Database
from shared.store.database.statements import Statement, Step
from shared.value import value

_PAGE = 1000
# What may stand beside an id that is one, and not a part of another.
_WORD = r"[0-9A-Za-z_]"
# Every table with each column of its primary key, in order; without one, no column.
_TABLES = Statement(
    "every_table",
    """SELECT known.name, part.name AS part FROM sqlite_master AS known
       LEFT JOIN pragma_table_info(known.name) AS part ON part.pk > 0
       WHERE known.type = 'table' AND known.name NOT LIKE 'sqlite_%' AND known.name NOT LIKE 'search_grams%'
       ORDER BY known.name, part.pk""",
    """SELECT known.tablename AS name, part.attname AS part FROM pg_tables AS known
       LEFT JOIN pg_index AS by_key ON by_key.indisprimary
             AND by_key.indrelid = to_regclass(quote_ident(known.schemaname) || '.' || quote_ident(known.tablename))
       LEFT JOIN LATERAL unnest(by_key.indkey) WITH ORDINALITY AS place(number, n) ON true
       LEFT JOIN pg_attribute AS part ON part.attrelid = by_key.indrelid AND part.attnum = place.number
       WHERE known.schemaname = current_schema()
       ORDER BY known.tablename, place.n""",
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
    [parts] = await database.read(Step(_TABLES, {}))
    keys: dict[str, list[str]] = {row["name"]: [] for row in parts}
    for row in parts:
        if row["part"] is not None:
            keys[row["name"]].append(row["part"])
    found = []
    for done, table in enumerate(sorted(keys)):
        tell(done, len(keys))
        count = await _rows_with(database, table, keys[table], word)
        if count:
            found.append(Remains(table, count))
    return found


async def _rows_with(database: Database, table: str, key: Sequence[str], word: re.Pattern[str]) -> int:
    """Counted page by page, each behind the last key of the page before it: rows that are deleted meanwhile move no others. A row whose
    key is written meanwhile may be seen or not."""
    count, place = 0, dict[str, Any]()
    while True:
        [rows] = await database.read(Step(_page(table, key, first=not place), {"limit": _PAGE, **place}))
        count += sum(any(isinstance(v, str) and word.search(v) for v in row.values()) for row in rows)
        if len(rows) < _PAGE or not key:
            return count
        place = {_behind(n): rows[-1][name] for n, name in enumerate(key)}


def _page(table: str, key: Sequence[str], *, first: bool) -> Statement:
    """The next rows of a table in the order of its key. One without a key is small: all of it is one page."""
    names = ", ".join(f'"{name}"' for name in key)
    behind = "" if first else f"WHERE ({names}) > ({', '.join(f':{_behind(n)}' for n in range(len(key)))})"
    text = f'SELECT * FROM "{table}" {behind} ORDER BY {names} LIMIT :limit' if key else f'SELECT * FROM "{table}"'
    return Statement("every_row", text, text)


def _behind(n: int) -> str:
    """The parameter of a key's column: names of parameters are letters."""
    return f"behind_{ascii_lowercase[n]}"
