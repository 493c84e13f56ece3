"""What the store needs of a database, and the two that offer it: SQLite and PostgreSQL.

A transaction is a list of statements, sent whole. Both databases run the same `.sql` files. A statement that depends on an
earlier one says so in SQL, not in Python, so an operation is written once, costs one round trip, and is all or nothing.

A write whose last statement is a query is answered by that query alone: rows that are returned one by one cost a busy process
more than all the rest, because each needs the interpreter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from shared.errors import ConfigurationError
from shared.store.database.statements import Step

__all__ = ["CONNECTIONS", "Database", "Row", "Step", "open_database"]

Row = dict[str, Any]

CONNECTIONS = 8  # of one process to PostgreSQL, where nobody says otherwise


class Database(Protocol):
    """Raises Unavailable for an outage (an allow list of errors that pass by themselves) and AlreadyDone when a unique id
    exists. Any other error is raised as it is: it would come again, so it belongs to whom the statements are for."""

    dialect: str  # sqlite or postgres: for the few statements that only one of them has
    place: str  # where a file is, for a sentence: " at /path"; "" for a server

    async def write(self, *steps: Step, can_linger: bool = False, raise_if_locked: bool = False) -> list[list[Row]]:
        """Run the steps in one transaction. It is durable when this returns; after an error, all or nothing of it is.

        Gives the rows that each step returned, or, where the last is a query, its rows and nothing else. `can_linger`: the
        caller does not mind some milliseconds in which others may join the same commit. `raise_if_locked`: raise Locked
        after a short wait for a locked row, instead of waiting as long as a call may take.
        """

    async def read(self, *steps: Step) -> list[list[Row]]:
        """Run queries beside the writers. Gives the rows of each."""

    async def migrate(self) -> list[str]:
        """Bring the schema up to date and name the migrations applied. Safe to repeat, and to run twice at once."""

    async def pending_migrations(self) -> list[str]:
        """The migrations that `migrate` would apply."""

    async def close(self) -> None:
        """Finish what was begun and let go of all connections."""


async def open_database(url: str, connections: int = CONNECTIONS) -> Database:
    """The database at `url`, ready for use. PostgreSQL gets at most so many connections to its primary."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from shared.store.database.sqlite import SqliteDatabase

        return SqliteDatabase(Path(url.removeprefix("sqlite:///")))
    if scheme in ("postgresql", "postgres"):
        from shared.store.database.postgres import PostgresDatabase

        return await PostgresDatabase.open(url, connections)
    raise ConfigurationError("DATABASE_URL must begin with sqlite:/// or postgresql://")
