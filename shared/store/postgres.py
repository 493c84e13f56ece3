"""PostgreSQL: an async pool; a call's statements go out in one pipeline, so it costs one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from shared.clock import now_ms
from shared.errors import AlreadyDone, ConfigurationError, Unavailable
from shared.store.database import Row, Statement, Step, storable_steps
from shared.store.migrations import LEDGER, migrations
from shared.value import value

POOL_SIZE = 8
WAIT_SECONDS = 5.0
CALL_SECONDS = 35.0  # longer than the server lets a statement run: then it is the network that does not answer
TRIES = 5  # of a transaction that lost a deadlock or a serialisation race
_LOST = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, TimeoutError)
_AWAY = (*_LOST, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)
_OPTIONS = {
    "lock_timeout": "10s",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "30s",
    # Each statement of a turn has its index. A plan that was made while a table was small must not read all of it when it is large.
    "enable_seqscan": "off",
    "enable_mergejoin": "off",
}
# In a list that hangs on its first statement, these are sent once.
SAME_FOR_ALL = {"session_id", "session_key", "turn_id", "now", "turns"}
_LOCK = 0x6B657974  # the advisory lock that keeps two migrations apart


class Postgres:
    dialect = "postgres"

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Row]]) -> None:
        self._pool = pool
        self._checking: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, url: str) -> Postgres:
        """Opens even while the server is down: calls then raise Unavailable until it is back."""
        _check(url)
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Row]] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=POOL_SIZE,
            timeout=WAIT_SECONDS,
            reconnect_timeout=WAIT_SECONDS,
            kwargs={
                "cursor_factory": psycopg.AsyncRawCursor,  # PostgreSQL's own $1: nothing to translate on each call
                "autocommit": True,
                "row_factory": dict_row,
                "prepare_threshold": 1,
                "connect_timeout": 3,
                "keepalives_idle": 5,  # a server that is gone without a word is missed after some ten seconds
                "keepalives_interval": 2,
                "keepalives_count": 3,
                "tcp_user_timeout": 10_000,
                "application_name": "keyturn",
                "options": " ".join(f"-c {name}={value}" for name, value in _OPTIONS.items()),
            },
            open=False,
        )
        await pool.open(wait=False)
        return cls(pool)

    async def write(self, *steps: Step, may_wait: bool = False) -> list[list[Row]]:
        # What may wait does not: the server finds company for it by itself.
        try:
            return await self._write(steps)
        except (UnicodeEncodeError, psycopg.DataError):  # it was not sent, or all of it was refused
            return await self._write(storable_steps(steps))

    async def _write(self, steps: tuple[Step, ...]) -> list[list[Row]]:
        for left in reversed(range(TRIES)):
            try:
                return await self._run(steps, transaction=True)
            except psycopg.errors.UniqueViolation as error:
                raise AlreadyDone(str(error)) from None
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                if not left:
                    raise Unavailable("PostgreSQL: too much contention") from None
            except _AWAY as error:
                raise self._unavailable(error) from None
        raise AssertionError

    async def read(self, *steps: Step) -> list[list[Row]]:
        try:
            return await self._run(steps, transaction=False)
        except _AWAY as error:
            raise self._unavailable(error) from None

    async def migrate(self) -> list[str]:
        done = []
        try:
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", [_LOCK])
                await connection.execute(LEDGER)
                applied = await _applied(connection)
                for migration in migrations("postgres"):
                    if migration.name in applied:
                        continue
                    for statement in migration.statements:
                        await connection.execute(statement.encode())
                    await connection.execute("INSERT INTO migrations VALUES ($1, $2)", [migration.name, now_ms()])
                    done.append(migration.name)
        except _LOST as error:
            raise _unavailable(error) from None
        return done

    async def pending_migrations(self) -> list[str]:
        try:
            async with self._pool.connection() as connection:
                applied = await _applied(connection)
        except _LOST as error:
            raise _unavailable(error) from None
        return [m.name for m in migrations("postgres") if m.name not in applied]

    async def close(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
        await self._pool.close(timeout=2)

    def _unavailable(self, error: Exception) -> Unavailable:
        """Where one connection was lost, the others probably were: look now, so that no call has to find out for each."""
        if isinstance(error, _LOST) and (self._checking is None or self._checking.done()):
            self._checking = asyncio.create_task(self._check())
        return _unavailable(error)

    async def _check(self) -> None:
        with suppress(Exception):
            await self._pool.check()

    async def _run(self, steps: tuple[Step, ...], *, transaction: bool) -> list[list[Row]]:
        queries = _queries(steps) if transaction else [_queries((step,))[0] for step in steps]
        async with asyncio.timeout(CALL_SECONDS), self._pool.connection() as connection:
            if len(queries) == 1:
                cursors = [await connection.execute(*queries[0])]
            else:
                async with connection.pipeline(), connection.transaction() if transaction else nullcontext():
                    cursors = [await connection.execute(*query) for query in queries]
            return await _results(steps, cursors)


@value
class _Query:
    """Text for PostgreSQL, and for each of its parameters the step and the name of its value."""

    text: bytes
    places: tuple[tuple[int, str], ...]

    def values(self, steps: tuple[Step, ...]) -> list[Any]:
        return [steps[n].values[name] for n, name in self.places]


def _queries(steps: tuple[Step, ...]) -> list[tuple[bytes, list[Any]]]:
    """What is sent for a list of steps: one statement where all the others hang on the first, else one for each."""
    if len(steps) == 1 or steps[0].statement.gives is not None:
        query = _composed(tuple(step.statement for step in steps))
        return [(query.text, query.values(steps))]
    return [_queries((step,))[0] for step in steps]


@lru_cache(maxsize=256)
def _composed(statements: tuple[Statement, ...]) -> _Query:
    """One statement: each is a common table expression that the later ones may select from. It returns what a query at the
    end asks for, or else (step, row)."""
    places: list[tuple[int, str]] = []
    known: dict[tuple[int, str] | str, int] = {}

    def placed(n: int) -> Callable[[str], int]:
        def place(name: str) -> int:
            at = name if name in SAME_FOR_ALL else (n, name)
            if at not in known:
                places.append((n, name))
                known[at] = len(places)
            return known[at]

        return place

    if len(statements) == 1:
        return _Query(statements[0].for_postgres(placed(0)).encode(), tuple(places))
    expressions, answers = [], []
    for n, statement in enumerate(statements):
        name, text = statement.gives or f"step{n}", statement.for_postgres(placed(n))
        if statement.asks:
            answers = [text]
            break
        expressions.append(f"{name} AS (\n{text}\n)")
        if statement.returns:
            answers.append(f"SELECT {n} AS step, to_jsonb({name}) AS row FROM {name}")
    return _Query(f"WITH {', '.join(expressions)}\n{' UNION ALL '.join(answers)}".encode(), tuple(places))


async def _results(steps: tuple[Step, ...], cursors: list[psycopg.AsyncCursor[Row]]) -> list[list[Row]]:
    """The rows that each step returned."""
    if len(cursors) == len(steps):
        return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]
    rows: list[list[Row]] = [[] for _ in steps]
    if steps[-1].statement.asks:
        return [*rows[:-1], await cursors[0].fetchall()]
    for row in await cursors[0].fetchall():
        rows[row["step"]].append(row["row"])
    return rows


async def _applied(connection: psycopg.AsyncConnection[Row]) -> set[str]:
    cursor = await connection.execute("SELECT to_regclass('migrations') AS ledger")
    if not [row for row in await cursor.fetchall() if row["ledger"]]:
        return set()
    cursor = await connection.execute("SELECT name FROM migrations")
    return {row["name"] for row in await cursor.fetchall()}


def _check(url: str) -> None:
    """A URL that cannot be read would be quoted by the driver on every attempt, with the password in it."""
    try:
        port = psycopg.conninfo.conninfo_to_dict(url).get("port")
    except psycopg.ProgrammingError:
        port = "none"
    if port is not None and not all(number.isdigit() for number in str(port).split(",") if number):
        raise ConfigurationError("DATABASE_URL cannot be read; escape special characters in it") from None


def _unavailable(error: Exception) -> Unavailable:
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return Unavailable("PostgreSQL: the schema is not up to date; run `keyturn migrate`")
    return Unavailable(f"PostgreSQL: {type(error).__name__}")
