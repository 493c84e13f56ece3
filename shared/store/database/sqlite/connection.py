"""A connection to the SQLite file: how it is set up, and how a statement gets the file to itself."""

from __future__ import annotations

import random
import sqlite3
import time
from hashlib import sha256
from pathlib import Path

from shared.store.database import Row

MAPPED_BYTES = 1 << 30  # read without a copy: among a million sessions, hardly a page is where the last turn looked
CHECKPOINT_PAGES = 4000  # of log before it is copied back: a page that changes often is copied once for many changes
BUSY_SECONDS = 30.0  # how long another process may keep the file before calls fail
PAUSE_SECONDS = (0.0001, 0.0008)  # between two tries to get the file: others hold it for one commit at a time


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose commits are on disk when they return, that gives rows as dicts and has the function `message_digest`."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.row_factory = _row
    connection.create_function("message_digest", 1, _message_digest, deterministic=True)
    wait_for_file(connection, "PRAGMA journal_mode = WAL")  # the first ever is a write, and does not wait by itself
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 0")  # we wait ourselves, in smaller steps
    connection.execute("PRAGMA cache_size = -16000")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
    return connection


def begin(connection: sqlite3.Connection) -> None:
    """Begin a transaction as the one writer of the file."""
    wait_for_file(connection, "BEGIN IMMEDIATE")


def roll_back(connection: sqlite3.Connection) -> None:
    """End the transaction without a trace. SQLite may have done so by itself."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def wait_for_file(connection: sqlite3.Connection, statement: str) -> None:
    """Run a statement that needs the file to itself, as soon as nobody else has it."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(*PAUSE_SECONDS))


def _message_digest(id: str | None) -> bytes | None:
    """What the table known_messages knows a message by: the same as PostgreSQL's function of that name."""
    return sha256(id.encode()).digest()[:16] if id is not None else None


def _row(cursor: sqlite3.Cursor, values: tuple[object, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, values, strict=True)}
