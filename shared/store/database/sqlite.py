"""SQLite: WAL, synchronous FULL, one writer thread per process with group commit, a reader thread beside it.

What waits while a commit is being synced goes into the next one together, so many turns share one sync. If one of them
fails, all are rolled back and done again, each as a savepoint of its own: a call that fails takes nothing of the others with
it. After a crash, what `write` returned for is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import random
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from shared import log
from shared.clock import now_ms
from shared.errors import AlreadyDone, Unavailable
from shared.store.database import Row, Step
from shared.store.database.migrations import LEDGER, migrations
from shared.store.database.statements import storable_steps

BATCH = 256  # calls per commit
# How long a busy event loop may keep the interpreter from the writer, which needs it between two statements. Python's own
# 5 ms would be waited for several times in each commit.
SWITCH_SECONDS = 0.001
MAPPED_BYTES = 1 << 30  # read without a copy: among a million sessions, hardly a page is where the last turn looked
CHECKPOINT_PAGES = 4000  # of log before it is copied back: a page that changes often is copied once for many changes
BUSY_SECONDS = 30.0  # how long another process may keep the file before calls fail
LINGER_SECONDS = 0.005  # how long what may wait for company does
# An outage: these pass by themselves, or when somebody gives the file room and rights. Any other error would come again
# with the same statement.
_PASSING = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOTADB,
)
_EXISTS = (
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
)


class Sqlite:
    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._writer = _Thread("sqlite-writer", self._connect, transactional=True)
        self._reader = _Thread("sqlite-reader", self._connect, transactional=False)

    async def write(self, *steps: Step, can_linger: bool = False, raise_if_locked: bool = False) -> list[list[Row]]:
        # Nobody gives up early: SQLite locks the file, not a row, so a write without the others would wait as long.
        try:
            return await self._writer.run(steps, can_linger)
        except UnicodeEncodeError:
            return await self._writer.run(storable_steps(steps), can_linger)

    async def read(self, *steps: Step) -> list[list[Row]]:
        return await self._reader.run(steps)

    async def migrate(self) -> list[str]:
        return await asyncio.to_thread(self._migrate)

    async def pending_migrations(self) -> list[str]:
        def look() -> list[str]:
            if not self._path.exists():  # looking makes no file
                return [m.name for m in migrations("sqlite")]
            with contextlib.closing(self._connect()) as connection:
                return _pending(connection)

        return await asyncio.to_thread(look)

    async def vacuum(self) -> None:
        """Write the file anew, so that nothing deleted is left in its unused space or its log. Nobody else can write
        meanwhile; Unavailable while somebody reads all the time."""
        await asyncio.to_thread(self._vacuum)

    async def close(self) -> None:
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self._reader.close)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.row_factory = _row
        _patiently(connection, "PRAGMA journal_mode = WAL")  # the first ever is a write, and does not wait by itself
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA busy_timeout = 0")  # we wait ourselves, in smaller steps
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
        return connection

    def _vacuum(self) -> None:
        with contextlib.closing(self._connect()) as connection:
            try:
                _patiently(connection, "VACUUM")
                connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
                if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()["busy"]:
                    raise Unavailable("SQLite: the log is being read, and still holds what was deleted")
            except sqlite3.OperationalError as error:
                raise _translated(error, connection) from None

    def _migrate(self) -> list[str]:
        done = []
        with contextlib.closing(self._connect()) as connection:
            _begin(connection)
            connection.execute(LEDGER)
            applied = _applied(connection)
            for migration in migrations("sqlite"):
                if migration.name in applied:
                    continue
                for statement in migration.statements:
                    connection.execute(statement)
                connection.execute("INSERT INTO migrations VALUES (?, ?)", (migration.name, now_ms()))
                done.append(migration.name)
            connection.execute("COMMIT")
        return done


class _Thread:
    """One connection in one thread. Calls queue up; a transactional thread commits all that is waiting at once."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection], *, transactional: bool) -> None:
        self._connect = connect
        self._transactional = transactional
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._started = False
        self._start = threading.Lock()

    async def run(self, steps: tuple[Step, ...], can_linger: bool = False) -> list[list[Row]]:
        if not self._started:
            with self._start:
                if not self._started:
                    self._started = True
                    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
                    self._thread.start()
        answers_from = len(steps) - 1 if self._transactional and steps[-1].statement.asks else 0
        call = _Call(steps, answers_from, asyncio.get_running_loop(), can_linger)
        self._calls.put(call)
        return await call.future

    def close(self) -> None:
        if self._started:
            self._calls.put(None)
            self._thread.join()

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        while True:
            batch = self._waiting()
            calls = [call for call in batch if call is not None]
            try:
                connection = connection or self._connect()
                self._run_batch(connection, calls)
            except Exception as error:  # opening the file, BEGIN, COMMIT, or an outage: no single call's doing
                if not isinstance(error, sqlite3.Error):
                    log.get().error("SQLite: unexpected error", thread=self._thread.name, exc_info=True)
                for call in calls:
                    call.fail(Unavailable(f"SQLite: {error}"))
                with contextlib.suppress(sqlite3.Error):
                    if connection is not None:
                        connection.close()
                connection = None
            _resolve(calls)
            if len(calls) < len(batch):
                break
        if connection is not None:
            connection.close()

    def _waiting(self) -> list[_Call | None]:
        """What waits, once something does that will not wait for others."""
        batch = [self._calls.get()]
        until = time.monotonic() + LINGER_SECONDS
        while len(batch) < BATCH:
            lingers = all(call is not None and call.can_linger for call in batch)
            try:
                batch.append(self._calls.get(lingers, max(until - time.monotonic(), 0)))
            except queue.Empty:
                break
        return batch

    def _run_batch(self, connection: sqlite3.Connection, calls: list[_Call]) -> None:
        if not calls:
            return
        if not self._transactional:
            for call in calls:
                call.attempt(connection)
            return
        _begin(connection)
        try:
            if not all(call.attempt(connection) for call in calls):
                _roll_back(connection)
                if len(calls) == 1:
                    return
                _begin(connection)
                for call in calls:
                    _attempt_alone(connection, call)
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # SQLite may have done it by itself
        connection.execute("ROLLBACK")


def _attempt_alone(connection: sqlite3.Connection, call: _Call) -> None:
    connection.execute("SAVEPOINT call")
    if not call.attempt(connection):
        connection.execute("ROLLBACK TO call")
    connection.execute("RELEASE call")


class _Call:
    def __init__(
        self, steps: tuple[Step, ...], answers_from: int, loop: asyncio.AbstractEventLoop, can_linger: bool
    ) -> None:
        self.steps = steps
        self.answers_from = answers_from
        self.loop = loop
        self.can_linger = can_linger
        self.future: asyncio.Future[list[list[Row]]] = loop.create_future()
        self.result: list[list[Row]] | None = None
        self.error: BaseException | None = None

    def attempt(self, connection: sqlite3.Connection) -> bool:
        self.error = None
        cursor = connection.cursor()
        try:
            self.result = []
            for number, s in enumerate(self.steps):
                cursor.execute(s.statement.sqlite, s.values)
                self.result.append(cursor.fetchall() if number >= self.answers_from else [])
        except Exception as error:
            cursor.close()  # a statement that was left half read would keep the others from committing
            if _passes(error) and connection.in_transaction:
                raise  # a full disk or a lost file concerns the whole batch; any other error only its caller
            self.error = _translated(error, connection)
        return self.error is None

    def fail(self, error: BaseException) -> None:
        self.error = error

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            assert self.result is not None
            self.future.set_result(self.result)


def _resolve(calls: list[_Call]) -> None:
    """Tell the callers, with one wake-up of each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
    for call in calls:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, mine in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is waiting any more
            loop.call_soon_threadsafe(_settle, mine)


def _settle(calls: list[_Call]) -> None:
    for call in calls:
        call.settle()


def _begin(connection: sqlite3.Connection) -> None:
    """Become the one writer of the file."""
    _patiently(connection, "BEGIN IMMEDIATE")


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Run a statement that needs the file to itself. Others hold it for a commit at a time, so short waits serve best."""
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
        time.sleep(random.uniform(0.0001, 0.0008))


def _pending(connection: sqlite3.Connection) -> list[str]:
    applied = _applied(connection)
    return [migration.name for migration in migrations("sqlite") if migration.name not in applied]


def _applied(connection: sqlite3.Connection) -> set[str]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchall():
        return set()
    return {row["name"] for row in connection.execute("SELECT name FROM migrations")}


def _row(cursor: sqlite3.Cursor, values: tuple[object, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, values, strict=True)}


def _code(error: Exception) -> int | None:
    """SQLite's own code. Errors that Python raises have none, not even those of its sqlite3 module."""
    return getattr(error, "sqlite_errorcode", None)


def _passes(error: Exception) -> bool:
    """Whether it is an outage. Python raises MemoryError for SQLITE_NOMEM."""
    code = _code(error)
    return isinstance(error, MemoryError) or (code is not None and code & 0xFF in _PASSING)


def _translated(error: Exception, connection: sqlite3.Connection) -> Exception:
    """The error that the caller gets: AlreadyDone, Unavailable, or the error itself where it is no outage."""
    if _code(error) in _EXISTS:
        return AlreadyDone(str(error))
    if _passes(error):
        return Unavailable(f"SQLite: {error}")
    # SQLite has no code of its own for a missing table or column.
    if _code(error) == sqlite3.SQLITE_ERROR and _pending(connection):
        return Unavailable("SQLite: the schema is not up to date; run `keyturn migrate`")
    return error
