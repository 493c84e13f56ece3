"""Databases with a past: conversations of a given length, or a given number of them, written straight into SQLite.

Made once per size and copied for each measurement: accepting a million messages first would take longer than all the rest.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from shared.store.journal import first_session_id
from tests.bench.ground import Ground

TEXT = "What was said some time ago, at about the length that people write in chats."


@dataclass
class Pasts:
    ground: Ground
    _made: dict[tuple[int, int], Path] = field(default_factory=dict)

    def copy(self, sessions: int, messages: int) -> str:
        """The URL of a database of its own, where keys 0, 1, 2 … have so many messages each."""
        template = self._made.get((sessions, messages)) or self._make(sessions, messages)
        path = self.ground.fresh_directory("past") / "keyturn.db"
        shutil.copy(template, path)
        with path.open("rb") as copy:
            os.fsync(copy.fileno())  # or the system would write it out while somebody measures
        return f"sqlite:///{path}"

    def _make(self, sessions: int, messages: int) -> Path:
        path = Path(self.ground.fresh_database("sqlite").removeprefix("sqlite:///"))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            for statement, rows in _ROWS.items():
                connection.executemany(statement, rows(sessions, messages))
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._made[sessions, messages] = path
        return path


def key_of(number: int) -> str:
    return f"agent:main:webhook:dm:c{number}"


def _routes(sessions: int, _: int) -> Iterator[tuple[object, ...]]:
    for number in range(sessions):
        yield key_of(number), first_session_id(key_of(number))


def _sessions(sessions: int, messages: int) -> Iterator[tuple[object, ...]]:
    for number in range(sessions):
        yield first_session_id(key_of(number)), key_of(number), messages


def _messages(sessions: int, messages: int) -> Iterator[tuple[object, ...]]:
    for number in range(sessions):
        id = first_session_id(key_of(number))
        for n in range(1, messages + 1):
            yield id, n, "user" if n % 2 else "assistant", TEXT


_ROWS = {
    "INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at) VALUES (?, ?, 0, 0, 1)": _routes,
    "INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at)"
    " VALUES (?, ?, 1, 'past', ?, 1, 1)": _sessions,
    "INSERT INTO messages (session_id, n, turn_id, role, text, data, created_at)"
    " VALUES (?, ?, 'past', ?, ?, '{}', 1)": _messages,
}
