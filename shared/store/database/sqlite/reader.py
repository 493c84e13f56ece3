"""Queries, in a thread of their own beside the writer. Each sees what was committed when it began."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from shared.store.database import Row, Step
from shared.store.database.sqlite.call import DatabaseCall
from shared.store.database.sqlite.thread import ConnectionThread


class Reader:
    """Runs queries one by one, never behind a write."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._thread = ConnectionThread("sqlite-reader", connect, _read)

    async def run(self, steps: tuple[Step, ...]) -> list[list[Row]]:
        """The rows of each step."""
        return await self._thread.run(DatabaseCall(steps))

    def close(self) -> None:
        self._thread.close()


def _read(connection: sqlite3.Connection, calls: Sequence[DatabaseCall]) -> None:
    for call in calls:
        call.attempt(connection)
