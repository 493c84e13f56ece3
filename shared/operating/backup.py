"""A backup: the database as one file, made while everything runs."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

from shared.clock import moment, now_ms
from shared.errors import CannotDo
from shared.failpoints import reach
from shared.settings import Settings
from shared.store.backup.content import CopyProgress, Tell, check_schema
from shared.store.backup.place import backup_of
from shared.store.backup.unfinished import put_in_place, unfinished
from shared.value import value


@value
class WrittenBackup:
    """A backup that is on disk: how large it is, what is in it, and when it was begun. It has everything that was committed by then."""

    file: str
    bytes: int
    sessions: int
    messages: int
    at: datetime
    blobs: str  # where the files of conversations are, which are not in it


async def back_up(settings: Settings, file: Path, tell: Tell, *, replace: bool = False) -> WrittenBackup:
    """Write the database into a file for its owner alone, and read it through. CannotDo where there is such a file already,
    unless it is to be replaced. Turns go on meanwhile.

    The file appears whole: after a crash there is none, or the one before, and beside it a hidden one that the next backup to
    the same file uses again.
    """
    database = backup_of(settings.database)
    database.check_target(file)
    _check_free(file, replace=replace)
    with unfinished(file, "unfinished") as path:
        at = moment(now_ms())
        await database.write(path, tell)
        tell(CopyProgress("reading the backup through"))
        content = await asyncio.to_thread(database.look, path)
        check_schema(path, content, database.dialect)
        _check_free(file, replace=replace)
        size = path.stat().st_size
        reach("backup.before_rename")
        try:
            put_in_place(path, file)
        except OSError as error:
            raise CannotDo(f"{file} cannot be written: {error.strerror}") from None
    return WrittenBackup(str(file), size, content.sessions, content.messages, at, blob_place(settings))


def blob_place(settings: Settings) -> str:
    """Where the files of conversations are kept."""
    return settings.blobs.url or str(settings.blob_dir)


def _check_free(file: Path, *, replace: bool) -> None:
    if file.is_dir() or (file.exists() and not file.is_file()):
        raise CannotDo(f"{file} is no file: name the file that the backup is to be")
    if file.exists() and not replace:
        raise CannotDo(f"{file} is there already: --replace writes over it")
