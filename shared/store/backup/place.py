"""The databases that can be backed up, behind one contract."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from shared.errors import ConfigurationError
from shared.store.backup.content import BackupContent, Tell
from shared.store.backup.replacing import Replacement


class BackupOf(Protocol):
    """How one kind of database is backed up and restored."""

    dialect: str
    name: str  # of the database, for people: without a password

    def check_target(self, file: Path) -> None:
        """CannotDo where a backup must not be written: over the database itself."""

    async def write(self, to: Path, tell: Tell) -> None:
        """Copy what is committed now into an empty file, while others use the database."""

    def look(self, file: Path) -> BackupContent:
        """Read a backup through. CannotDo where it is damaged."""

    def replacing(self, file: Path, content: BackupContent) -> AbstractAsyncContextManager[Replacement]:
        """Keep everybody else out of the database for the block; CannotDo where somebody is in it."""


def backup_of(url: str) -> BackupOf:
    """The database that a URL names."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from shared.store.backup.sqlite import SqliteBackup

        return SqliteBackup(Path(url.removeprefix("sqlite:///")))
    if scheme in ("postgresql", "postgres"):
        from shared.store.backup.postgres import PostgresBackup

        return PostgresBackup(url)
    raise ConfigurationError("DATABASE_URL must begin with sqlite:/// or postgresql://")
