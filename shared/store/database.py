"""A transaction is a list of statements, sent whole.

Both databases run the same files. A statement that depends on an earlier one says so in SQL, not in Python, so an
operation is written once, costs one round trip, and is all or nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shared.errors import ConfigurationError

Row = dict[str, Any]
_SQL = Path(__file__).parent / "sql"
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One .sql file, for both parameter styles."""

    name: str
    sqlite: str
    postgres: str


def _load(path: Path) -> Statement:
    body = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("--"))
    return Statement(path.stem, body, _PARAMETER.sub(r"%(\1)s", body))


STATEMENTS = {path.stem: _load(path) for path in sorted(_SQL.glob("*.sql"))}


@dataclass(frozen=True, slots=True)
class Step:
    """A statement with its values."""

    statement: Statement
    values: dict[str, Any]


def step(name: str, **values: Any) -> Step:
    return Step(STATEMENTS[name], values)


class Database(Protocol):
    """Raises Unavailable when the database cannot be reached or written, AlreadyDone when a unique id exists."""

    async def write(self, *steps: Step) -> list[list[Row]]:
        """Run the steps in one transaction. It is durable when this returns; after an error, all or nothing of it is."""

    async def read(self, *steps: Step) -> list[list[Row]]:
        """Run queries beside the writers."""

    async def migrate(self) -> list[str]:
        """Bring the schema up to date and name the migrations applied."""

    async def pending_migrations(self) -> list[str]:
        """What `migrate` would apply."""

    async def close(self) -> None: ...


async def open_database(url: str) -> Database:
    """The database at `url`, ready for use."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from shared.store.sqlite import Sqlite

        return Sqlite(Path(url.removeprefix("sqlite:///")))
    if scheme in ("postgresql", "postgres"):
        from shared.store.postgres import Postgres

        return await Postgres.open(url)
    raise ConfigurationError("DATABASE_URL must begin with sqlite:/// or postgresql://")
