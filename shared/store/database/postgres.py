"""PostgreSQL: an async pool; a call's statements go out in one pipeline, so it costs one round trip.

A connection pooler such as pgbouncer may stand in between. In transaction mode each transaction may run on another server
connection, so nothing may be left in a session: our settings then go with each transaction, no statement is prepared, and
a call costs more round trips.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from shared import log
from shared.background import end_tasks
from shared.clock import now_ms
from shared.errors import ConfigurationError, Unavailable
from shared.store.database import Row, Step
from shared.store.database.migrations import LEDGER, migrations
from shared.store.database.postgres_errors import passes, real_error, reconnects, translated
from shared.store.database.statements import PARAMETER, Statement, storable_steps
from shared.value import value

POOL_SIZE = 8
WAIT_SECONDS = 5.0
CALL_SECONDS = 35.0  # longer than the server lets a statement run: then it is the network that does not answer
TRIES = 5  # of a transaction that lost a deadlock or a serialisation race
LOCK_SECONDS = 10.0  # how long a call waits for rows that others keep locked, unless it gives up early
RECONNECT_SECONDS = 1.0  # the shortest time between two renewals of all connections
_OPTIONS = {
    "lock_timeout": "500ms",  # one wait: a call that may wait for longer runs again
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "30s",
    # Each statement of a turn has its index. A plan that was made while a table was small must not read all of it when it is large.
    "enable_seqscan": "off",
    "enable_mergejoin": "off",
}
# In a list that hangs on its first statement, these are sent once.
SAME_FOR_ALL = {"session_id", "session_key", "turn_id", "now", "turns"}
_LOCK = 0x6B657974  # the advisory lock that keeps two migrations apart
MIGRATION_SECONDS = 600.0  # how long a migration tries to get its tables
# A migration may take its time. It waits for a table only shortly, since everybody else waits behind it meanwhile.
_MIGRATING = {
    **dict.fromkeys(("statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout"), "0"),
    **dict.fromkeys(("enable_seqscan", "enable_mergejoin"), "on"),
}
_MIGRATION_LOCK = {"lock_timeout": "200ms"}  # less than a commit waits for a lock


class Connection(psycopg.AsyncConnection[Row]):
    pooled = False  # by a pooler in between


class Postgres:
    dialect = "postgres"

    def __init__(self, pool: AsyncConnectionPool[Connection]) -> None:
        self._pool = pool
        self._checking: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, url: str) -> Postgres:
        """Opens even while the server is down: calls then raise Unavailable until it is back."""
        _check(url)
        pool = AsyncConnectionPool(
            url,
            connection_class=Connection,
            configure=_configure,
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
            },
            open=False,
        )
        await pool.open(wait=False)
        return cls(pool)

    async def write(self, *steps: Step, can_linger: bool = False, raise_if_locked: bool = False) -> list[list[Row]]:
        # What may wait does not: the server finds company for it by itself.
        try:
            return await self._persist(steps, transaction=True, raise_if_locked=raise_if_locked)
        except (UnicodeEncodeError, psycopg.DataError):  # it was not sent, or all of it was refused
            return await self._persist(storable_steps(steps), transaction=True, raise_if_locked=raise_if_locked)

    async def read(self, *steps: Step) -> list[list[Row]]:
        return await self._persist(steps, transaction=False)

    async def _persist(
        self, steps: tuple[Step, ...], *, transaction: bool, raise_if_locked: bool = False
    ) -> list[list[Row]]:
        """Run the steps, again after a lost race and, unless it gives up, after a wait for a lock."""
        races, give_up_at = 0, time.monotonic() + (0 if raise_if_locked else LOCK_SECONDS)
        while True:
            try:
                return await self._run(steps, transaction=transaction)
            except Exception as raised:
                error = real_error(raised)
                if isinstance(error, psycopg.errors.SerializationFailure | psycopg.errors.DeadlockDetected):
                    if (races := races + 1) == TRIES:
                        raise Unavailable("PostgreSQL: too much contention") from None
                elif not isinstance(error, psycopg.errors.LockNotAvailable) or time.monotonic() > give_up_at:
                    self._look_after_connections(error)
                    raise translated(error, writing=transaction) from None

    async def migrate(self) -> list[str]:
        give_up_at = time.monotonic() + MIGRATION_SECONDS
        while True:
            try:
                return await self._migrate()
            except psycopg.errors.LockNotAvailable as error:
                if time.monotonic() > give_up_at:
                    raise translated(error, writing=True) from None
                log.get().warning("migration waits for a table that is in use")
                await asyncio.sleep(random.uniform(0.5, 1.5))
            except Exception as error:
                raise translated(error, writing=True) from None

    async def _migrate(self) -> list[str]:
        done = []
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(_setting(_MIGRATING, local=True))
            await connection.execute("SELECT pg_advisory_xact_lock($1)", [_LOCK])
            await connection.execute(_setting(_MIGRATION_LOCK, local=True))
            await connection.execute(LEDGER)
            applied = await _applied(connection)
            for migration in migrations("postgres"):
                if migration.name in applied:
                    continue
                for statement in migration.statements:
                    await connection.execute(statement.encode())
                await connection.execute("INSERT INTO migrations VALUES ($1, $2)", [migration.name, now_ms()])
                done.append(migration.name)
        return done

    async def pending_migrations(self) -> list[str]:
        try:
            async with self._pool.connection() as connection:
                applied = await _applied(connection)
        except Exception as error:
            raise translated(error, writing=False) from None
        return [m.name for m in migrations("postgres") if m.name not in applied]

    async def close(self) -> None:
        if self._checking is not None:
            await end_tasks(self._checking)
        await self._pool.close(timeout=2)

    def _look_after_connections(self, error: BaseException) -> None:
        """Where one connection was lost, the others probably were: look now, so that no call has to find out for each."""
        if passes(error, writing=False) and (self._checking is None or self._checking.done()):
            self._checking = asyncio.create_task(self._renew() if reconnects(error) else self._check())

    async def _check(self) -> None:
        with suppress(Exception):
            await self._pool.check()

    async def _renew(self) -> None:
        with suppress(Exception):
            await self._pool.drain()
        await asyncio.sleep(RECONNECT_SECONDS)

    async def _run(self, steps: tuple[Step, ...], *, transaction: bool) -> list[list[Row]]:
        queries = _queries(steps) if transaction else [_queries((step,))[0] for step in steps]
        async with asyncio.timeout(CALL_SECONDS), self._pool.connection() as connection:
            if connection.pooled:
                cursors = await _pooled(connection, queries)
            elif len(queries) == 1:
                cursors = [await connection.execute(*queries[0])]
            else:
                async with connection.pipeline(), connection.transaction() if transaction else nullcontext():
                    cursors = [await connection.execute(*query) for query in queries]
            return await _results(steps, cursors)


async def _pooled(connection: Connection, queries: list[tuple[bytes, list[Any]]]) -> list[psycopg.AsyncCursor[Row]]:
    """Run a call through a pooler: a round trip for each statement and three more.

    No pipeline: the driver may end one with a flush request, and the pooler then keeps a server connection for a client
    that has nothing more to say.
    """
    async with connection.transaction():
        await connection.execute(_setting(_OPTIONS, local=True))
        return [await connection.execute(*query) for query in queries]


def behind_pooler(connection: psycopg.AsyncConnection[Any], server_pid: int) -> bool:
    """Whether a pooler answered: it tells clients a process id of its own making. `server_pid` is pg_backend_pid()."""
    return connection.info.backend_pid != server_pid


async def _configure(connection: Connection) -> None:
    """Give a new connection our settings, unless a pooler is in between: then they would stay with another's session."""
    settings = _setting(_OPTIONS, local=False) + b" WHERE pg_backend_pid() = $1"
    connection.pooled = not await (await connection.execute(settings, [connection.info.backend_pid])).fetchall()
    if connection.pooled:
        connection.prepare_threshold = None


def _setting(options: Mapping[str, str], *, local: bool) -> bytes:
    """A query that makes these settings, for a transaction or for the session."""
    settings = (f"set_config('{name}', '{value}', {local})" for name, value in options.items())
    return f"SELECT {', '.join(settings)}".encode()


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

    def numbered(n: int) -> str:
        def place(match: re.Match[str]) -> str:
            name = match[1]
            at = name if name in SAME_FOR_ALL else (n, name)
            if at not in known:
                places.append((n, name))
                known[at] = len(places)
            return f"${known[at]}"

        return PARAMETER.sub(place, statements[n].postgres)

    if len(statements) == 1:
        return _Query(numbered(0).encode(), tuple(places))
    expressions, answers = [], []
    for n, statement in enumerate(statements):
        name, text = statement.gives or f"step{n}", numbered(n)
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
