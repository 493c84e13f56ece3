"""How many bytes a database takes, and how many of them are the transcripts'."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

# What stays for ever: what was said, whose it is, and what search finds it by.
TRANSCRIPTS = ("messages", "sessions", "routes", "facts", "notes", "search_rows", "search_grams", "search_spans")
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'search_grams_%'"
_SIZES = """
SELECT relname, pg_total_relation_size(oid), (
    SELECT COALESCE(SUM(avail), 0) FROM pg_class AS part CROSS JOIN LATERAL pg_freespace(part.oid::regclass)
    WHERE part.oid = owner.oid OR part.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = owner.oid))
FROM pg_class AS owner WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


def bytes_used(url: str) -> int:
    """What is not free for new rows: SQLite's pages without those on its free list; PostgreSQL's tables and indexes after
    VACUUM, without their free space."""
    if url.startswith("sqlite:"):
        return _pages_used(_path(url))
    return sum(size - free for size, free in _postgres_sizes(url).values())


def bytes_of_transcripts(url: str) -> int:
    """What the same database would take if it held nothing but transcripts, sessions and the search index."""
    if not url.startswith("sqlite:"):
        return sum(size - free for table, (size, free) in _postgres_sizes(url).items() if table in TRANSCRIPTS)
    bytes_used(url)  # the log is in the file now
    with TemporaryDirectory(prefix="keyturn-bench-") as directory:
        copy = Path(shutil.copy(_path(url), Path(directory) / "copy.db"))
        with closing(sqlite3.connect(copy, isolation_level=None)) as file:
            for (table,) in file.execute(_TABLES).fetchall():
                if table not in TRANSCRIPTS:
                    file.execute(f"DROP TABLE {table}")
        return _pages_used(copy)


def bytes_on_disk(url: str) -> int:
    """SQLite's file; PostgreSQL's tables and indexes. With what is free in them."""
    if not url.startswith("sqlite:"):
        return sum(size for size, _ in _postgres_sizes(url).values())
    bytes_used(url)  # the log is in the file now
    return _path(url).stat().st_size


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def _pages_used(path: Path) -> int:
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size, count, free = (
            file.execute(f"PRAGMA {n}").fetchone()[0] for n in ("page_size", "page_count", "freelist_count")
        )
    return int(size * (count - free))


def _postgres_sizes(url: str) -> dict[str, tuple[int, int]]:
    """By table: its bytes with its indexes, and how many of them are free."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_freespacemap")
        # An index page that the first VACUUM empties is free for new rows from the second on, if a transaction began in between.
        for _ in range(2):
            connection.execute("SELECT pg_current_xact_id()")
            connection.execute("VACUUM")
        return {str(table): (int(size), int(free)) for table, size, free in connection.execute(_SIZES).fetchall()}
