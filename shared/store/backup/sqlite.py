"""Backups of an SQLite file.

`VACUUM INTO` copies what was committed when it began, while others write. (SQLite's step-wise backup begins anew whenever
another process commits, so it need not come to an end.)
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from shared.errors import CannotDo, Unavailable
from shared.failpoints import reach
from shared.on_disk import sync
from shared.private_directory import make_private_directory
from shared.store.backup.content import BackupContent, CopyProgress, Tell, megabytes, unreadable
from shared.store.backup.replacing import LastWords, Replaced, Replacement
from shared.store.backup.unfinished import put_in_place, unfinished
from shared.store.database.sqlite.connection import BUSY_SECONDS
from shared.store.database.sqlite.errors import passes

WAL = "-wal"
MAGIC = b"SQLite format 3\0"
BESIDE = (WAL, "-shm", "-journal")  # SQLite's files beside a database
_CHUNK = 4_000_000
LOOK_SECONDS = 0.2  # between two looks at how far a copy is
_GET_SECONDS = 1.0  # how long somebody who only looks may keep the file
_IN_USE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class SqliteBackup:
    """Backups of the database in one file."""

    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = Path(os.path.realpath(path))
        self.name = str(path)

    def check_target(self, file: Path) -> None:
        here = os.path.realpath(file)
        if here in {str(self._path) + suffix for suffix in ("", *BESIDE)}:
            raise CannotDo(f"{file} is the database itself: name another file")

    async def write(self, to: Path, tell: Tell) -> None:
        if not self._path.exists():
            raise Unavailable(
                f"no database at {self.name}: run `keyturn migrate`, or name another in KEYTURN_DATABASE_URL"
            )
        writing = asyncio.create_task(asyncio.to_thread(write_copy, self._path, to))
        while not writing.done():
            size = megabytes(self._path.stat().st_size)
            tell(CopyProgress("MB written", min(megabytes(to.stat().st_size), size), size))
            await asyncio.wait({writing}, timeout=LOOK_SECONDS)
        await writing

    def look(self, file: Path) -> BackupContent:
        return look(file)

    @asynccontextmanager
    async def replacing(self, file: Path, content: BackupContent) -> AsyncIterator[Replacement]:
        if file.samefile(self._path) if self._path.exists() else False:
            raise CannotDo(f"{file} is the database itself")
        make_private_directory(self._path.parent)
        with to_oneself(self._path) as old, unfinished(self._path, "restoring") as new:
            yield SqliteReplacement(self._path, file, new, old)


class SqliteReplacement:
    """A new file beside the database, whose place it will take."""

    def __init__(self, path: Path, file: Path, new: Path, old: sqlite3.Connection | None) -> None:
        self._path = path
        self._file = file
        self._new = new
        self._old = old
        self._numbers: tuple[int, ...] = ()

    def prepare(self, last: LastWords, tell: Tell) -> None:
        self._numbers = prepare(self._file, self._new, last, tell)

    def put_in_place(self, tell: Tell) -> Replaced:
        kept = swap(self._new, self._path, self._old)
        return Replaced(self._numbers, str(kept) if kept is not None else None)


def write_copy(source: Path, to: Path) -> None:
    """Copy the database into an empty file, while others use it. Unavailable where it cannot be read or written now."""
    try:
        with closing(_opened(source, "mode=rw", BUSY_SECONDS)) as connection:
            connection.execute("VACUUM INTO ?", (str(to),))
    except sqlite3.Error as error:
        if passes(error):
            raise Unavailable(f"SQLite: {error}") from None
        raise CannotDo(f"{source} cannot be copied: {error}") from None


def look(file: Path) -> BackupContent:
    """Check every page of a backup, and say what it holds. CannotDo for a damaged file, and for one that has its latest
    changes in a log beside it: that is a copy of a database in use. Nothing is written."""
    wal = file.with_name(file.name + WAL)
    if wal.exists() and wal.stat().st_size:
        raise CannotDo(f"{file} is no backup but a database with a log beside it ({wal.name}): use `keyturn backup`")
    try:
        with closing(_opened(file, "mode=ro&immutable=1")) as connection:
            if (found := _one(connection, "PRAGMA integrity_check(1)")) != "ok":
                raise unreadable(file, found)
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not {"migrations", "sessions", "messages"} <= tables:
                return BackupContent((), 0, 0)
            names = [name for (name,) in connection.execute("SELECT name FROM migrations ORDER BY name")]
            sessions, messages = (_one(connection, f"SELECT COUNT(*) FROM {name}") for name in ("sessions", "messages"))
            return BackupContent(tuple(names), sessions, messages)
    except sqlite3.Error as error:
        raise unreadable(file, error) from None


@contextmanager
def to_oneself(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Keep everybody else out of the database for the block; CannotDo while a process has it open. None: there is none, or it
    is damaged, so that nobody can use it."""
    if not path.exists() or not _begins_as_database(path):  # SQLite would remove the log of what is none
        yield None
        return
    with closing(_opened(path, "mode=rw", _GET_SECONDS)) as connection:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # keeps the lock when the transaction has ended
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
            usable = True
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _IN_USE:
                raise CannotDo(f"a process has {path} open: stop all processes of the deployment") from None
            usable = False
        yield connection if usable else None


def prepare(file: Path, to: Path, last: LastWords, tell: Tell) -> tuple[int, ...]:
    """Copy a backup into an empty file, and say there what is to be said. Nothing else is touched."""
    size = megabytes(file.stat().st_size)
    for suffix in BESIDE:  # of one that was killed
        to.with_name(to.name + suffix).unlink(missing_ok=True)
    with file.open("rb") as source, to.open("wb") as target:
        for done in _copied(source, target):
            tell(CopyProgress("MB copied", megabytes(done), size))
    with closing(sqlite3.connect(to, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # of a file that is in WAL mode
        connection.execute("PRAGMA journal_mode = OFF")  # after a crash, the file is made anew
        connection.execute("BEGIN")
        for statement in last.statements:
            connection.execute(statement)
        connection.execute("COMMIT")
        return tuple([_one(connection, query) for query in last.queries])


def swap(new: Path, path: Path, old: sqlite3.Connection | None) -> Path | None:
    """Let `new` take the database's place, and keep the old one beside it under the name that is given back. `old` has the
    old one to itself.

    A crash leaves the old database in its place, whole, or the new one. Of one that is damaged already, the log is moved
    first; it is kept under the new name with the rest.
    """
    if old is not None:  # its log goes into the file, so the file alone is the database
        old.execute("PRAGMA journal_mode = DELETE")
    kept = None
    if path.exists():
        kept = path.with_name(f"{path.name}.before-restore-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
        _keep(path, kept)
    _give(new, path)
    for suffix in BESIDE:  # SQLite would take them for the new database's
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            if old is None and kept is not None:
                _keep(beside, kept.with_name(kept.name + suffix))
            beside.unlink()
    sync(path.parent)
    reach("restore.before_swap")
    put_in_place(new, path)
    reach("restore.after_swap")
    return kept


def _begins_as_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) in (MAGIC, b"")


def _keep(path: Path, under: Path) -> None:
    """A second name for a file, or a copy where the file system knows no second names."""
    try:
        os.link(path, under)
    except OSError:
        shutil.copy2(path, under)
        sync(under)


def _give(new: Path, path: Path) -> None:
    """The new file belongs to whom the old one did: `sudo` must not take it away from the processes."""
    if path.exists():
        new.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o007)
    if os.geteuid() == 0:
        owner = path.stat() if path.exists() else path.parent.stat()
        os.chown(new, owner.st_uid, owner.st_gid)


def _copied(source: BinaryIO, target: BinaryIO) -> Iterator[int]:
    done = 0
    while chunk := source.read(_CHUNK):
        done += target.write(chunk)
        yield done


def _opened(path: Path, how: str, timeout: float = 5.0) -> sqlite3.Connection:
    """A connection that makes no file."""
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", uri=True, isolation_level=None, timeout=timeout)


def _one(connection: sqlite3.Connection, query: str) -> Any:
    """The only value of the first row."""
    return connection.execute(query).fetchone()[0]
