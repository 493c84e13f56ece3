"""What a backup holds, and whether this version can use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shared.errors import CannotDo
from shared.store.database.migrations import migrations
from shared.value import value

FIRST_MIGRATION = "0001_spine"
_MAGIC = {"sqlite": b"SQLite format 3\0", "postgres": b"PGDMP"}
_NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


@value
class BackupContent:
    """What is in a backup: the migrations that its schema has, and how many sessions and messages of them."""

    migrations: tuple[str, ...]
    sessions: int
    messages: int
    schema: str = ""  # PostgreSQL's schema that the tables are in


@value
class CopyProgress:
    """How far a backup or a restore has come: what is done now and, where that is known, how many MB of it."""

    doing: str
    done: int = 0
    total: int = 0


Tell = Callable[[CopyProgress], None]


def check_kind(file: Path, dialect: str) -> None:
    """CannotDo unless the file looks like a backup of such a database."""
    try:
        with file.open("rb") as opened:
            begins = opened.read(16)
    except OSError as error:
        raise CannotDo(f"{file} cannot be read: {error.strerror}") from None
    kinds = [kind for kind, magic in _MAGIC.items() if begins.startswith(magic)]
    if not kinds:
        raise CannotDo(f"{file} is no backup: it is neither a database of SQLite nor a custom dump of PostgreSQL")
    if kinds != [dialect]:
        text = f"{file} is a backup of {_NAMES[kinds[0]]}, and DATABASE_URL names a database of {_NAMES[dialect]}"
        raise CannotDo(text)


def check_schema(file: Path, content: BackupContent, dialect: str) -> list[str]:
    """The migrations that the backup lacks. CannotDo for a database that is not Keyturn's, or that only a newer version knows."""
    if FIRST_MIGRATION not in content.migrations:
        raise CannotDo(f"{file} is a database of something else than Keyturn")
    known = [migration.name for migration in migrations(dialect)]
    if newer := sorted(set(content.migrations) - set(known)):
        raise CannotDo(f"{file} is of a newer version than this one (it has {newer[-1]}): install that version first")
    return [name for name in known if name not in content.migrations]


def unreadable(file: Path, why: object) -> CannotDo:
    """What an operator is told of a backup that is damaged."""
    return CannotDo(f"{file} is damaged and was not used: {why}")


def megabytes(count: int) -> int:
    return -(-count // 1_000_000)
