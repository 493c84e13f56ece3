"""What nanobot's models were asked. It keeps calls without their conversation, so the sums belong to nobody."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from keyturn.importing.conversation import Used
from shared.codec import storable
from shared.errors import Malformed

_QUERY = """
SELECT model, date(started_at_ms / 1000, 'unixepoch') AS day, COUNT(*) AS requests,
       COALESCE(SUM(input_tokens), 0) AS input, COALESCE(SUM(output_tokens), 0) AS output,
       COALESCE(SUM(cache_read_tokens), 0) AS cache_read, COALESCE(SUM(cache_write_tokens), 0) AS cache_write
FROM llm_calls WHERE total_tokens IS NOT NULL GROUP BY model, day ORDER BY day, model
"""


def used_in(path: Path) -> tuple[Used, ...]:
    """By model and day. nanobot keeps no prices."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            rows = [dict(row) for row in connection.execute(_QUERY)]
    except sqlite3.DatabaseError as error:
        raise Malformed(f"{path.name} cannot be read: {error}") from None
    return tuple(Used(**{**row, "model": storable(row["model"])}) for row in rows)
