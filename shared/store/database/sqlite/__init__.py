"""SQLite: one file, WAL, synchronous FULL, one writer thread per process with group commit, a reader thread beside it.

After a crash, every write that was answered is there, and of any other write all or nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from shared.errors import Unavailable
from shared.private_directory import make_private_directory
from shared.sqlite_place import place_in_words
from shared.store.database import Row, Step
from shared.store.database.sqlite import connection as connections
from shared.store.database.sqlite.connection import connect, wait_for_file
from shared.store.database.sqlite.errors import translated
from shared.store.database.sqlite.migrating import migrate, pending
from shared.store.database.sqlite.reader import Reader
from shared.store.database.sqlite.writer import Writer
from shared.store.database.statements import storable_steps


class SqliteDatabase:
    """A database in one file, for processes of one machine."""

    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        make_private_directory(path.parent)
        self._path = path
        self.place = f" at {place_in_words(path)}"
        self.writer = Writer(self._connect)
        self._reader = Reader(self._connect)

    async def write(self, *steps: Step, can_linger: bool = False, raise_if_locked: bool = False) -> list[list[Row]]:
        # `raise_if_locked` changes nothing: SQLite locks the file, not a row, and a write without the others waits as long.
        try:
            return await self.writer.run(steps, can_linger=can_linger)
        except UnicodeEncodeError:
            return await self.writer.run(storable_steps(steps), can_linger=can_linger)

    async def read(self, *steps: Step) -> list[list[Row]]:
        return await self._reader.run(steps)

    async def migrate(self) -> list[str]:
        def run() -> list[str]:
            with contextlib.closing(self._connect()) as connection:
                return migrate(connection)

        return await asyncio.to_thread(run)

    async def pending_migrations(self) -> list[str]:
        def look() -> list[str]:
            if not self._path.exists():  # looking makes no file
                return pending(None)
            with contextlib.closing(self._connect()) as connection:
                return pending(connection)

        return await asyncio.to_thread(look)

    async def vacuum(self) -> None:
        """Write the file anew, so that nothing deleted is left in its unused space or its log. Nobody else can write
        meanwhile. Unavailable: somebody reads all the time."""
        await asyncio.to_thread(self._vacuum)

    async def close(self) -> None:
        await asyncio.to_thread(self.writer.close)
        await asyncio.to_thread(self._reader.close)

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path)

    def _vacuum(self) -> None:
        with contextlib.closing(self._connect()) as connection:
            try:
                wait_for_file(connection, "VACUUM")
                connection.execute(f"PRAGMA busy_timeout = {int(connections.BUSY_SECONDS * 1000)}")
                if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()["busy"]:
                    raise Unavailable("SQLite: the log is being read, and still holds what was deleted")
            except sqlite3.OperationalError as error:
                raise translated(error, connection) from None
