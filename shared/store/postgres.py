"""PostgreSQL: an async pool; a call's statements go out in one pipeline, so it costs one round trip."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from shared.clock import now_ms
from shared.errors import AlreadyDone, Unavailable
from shared.store.database import Row, Statement, Step, storable_steps
from shared.store.migrations import LEDGER, migrations

POOL_SIZE = 8
WAIT_SECONDS = 5.0
TRIES = 5  # of a transaction that lost a deadlock or a serialisation race
_AWAY = (psycopg.OperationalError, PoolTimeout, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)
_LOCK = 0x6B657974  # the advisory lock that keeps two migrations apart


class Postgres:
    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Row]]) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, url: str) -> Postgres:
        """Opens even while the server is down: calls then raise Unavailable until it is back."""
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Row]] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=POOL_SIZE,
            timeout=WAIT_SECONDS,
            reconnect_timeout=WAIT_SECONDS,
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "prepare_threshold": 1,
                "connect_timeout": 3,
                "application_name": "keyturn",
                "options": "-c lock_timeout=10s -c statement_timeout=30s -c idle_in_transaction_session_timeout=30s",
            },
            open=False,
        )
        await pool.open(wait=False)
        return cls(pool)

    async def write(self, *steps: Step) -> list[list[Row]]:
        try:
            return await self._write(steps)
        except (UnicodeEncodeError, psycopg.DataError):  # it was not sent, or all of it was refused
            return await self._write(storable_steps(steps))

    async def _write(self, steps: tuple[Step, ...]) -> list[list[Row]]:
        for left in reversed(range(TRIES)):
            try:
                if len(steps) > 1 and steps[0].statement.gives is not None:
                    return await self._run_as_one(steps)
                return await self._run(steps, transaction=len(steps) > 1)
            except psycopg.errors.UniqueViolation as error:
                raise AlreadyDone(str(error)) from None
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                if not left:
                    raise Unavailable("PostgreSQL: too much contention") from None
            except _AWAY as error:
                raise _unavailable(error) from None
        raise AssertionError

    async def read(self, *steps: Step) -> list[list[Row]]:
        try:
            return await self._run(steps, transaction=False)
        except _AWAY as error:
            raise _unavailable(error) from None

    async def migrate(self) -> list[str]:
        done = []
        try:
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                await connection.execute(LEDGER)
                applied = await _applied(connection)
                for migration in migrations("postgres"):
                    if migration.name in applied:
                        continue
                    for statement in migration.statements:
                        await connection.execute(_query(statement))
                    await connection.execute("INSERT INTO migrations VALUES (%s, %s)", [migration.name, now_ms()])
                    done.append(migration.name)
        except (psycopg.OperationalError, PoolTimeout) as error:
            raise _unavailable(error) from None
        return done

    async def pending_migrations(self) -> list[str]:
        try:
            async with self._pool.connection() as connection:
                applied = await _applied(connection)
        except (psycopg.OperationalError, PoolTimeout) as error:
            raise _unavailable(error) from None
        return [m.name for m in migrations("postgres") if m.name not in applied]

    async def close(self) -> None:
        await self._pool.close(timeout=2)

    async def _run_as_one(self, steps: tuple[Step, ...]) -> list[list[Row]]:
        """A list whose statements hang on the first one, as one statement: one parse, one plan, one round trip."""
        query = _composed(tuple(step.statement for step in steps))
        values = {f"s{n}_{name}": value for n, step in enumerate(steps) for name, value in step.values.items()}
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_query(query), values)
            rows: list[list[Row]] = [[] for _ in steps]
            for row in await cursor.fetchall():
                rows[row["step"]].append(row)
            return rows

    async def _run(self, steps: tuple[Step, ...], *, transaction: bool) -> list[list[Row]]:
        async with self._pool.connection() as connection:
            if len(steps) == 1:
                cursor = await connection.execute(_query(steps[0].statement.for_postgres()), steps[0].values)
                return [await _rows(cursor)]
            async with connection.pipeline():
                if transaction:
                    async with connection.transaction():
                        cursors = [
                            await connection.execute(_query(s.statement.for_postgres()), s.values) for s in steps
                        ]
                else:
                    cursors = [await connection.execute(_query(s.statement.for_postgres()), s.values) for s in steps]
            return [await _rows(cursor) for cursor in cursors]


@lru_cache(maxsize=256)
def _composed(statements: tuple[Statement, ...]) -> str:
    """The statements as common table expressions, and what they return: (step, id)."""
    first = statements[0].gives
    expressions, answers = [], [f"SELECT 0 AS step, CAST(NULL AS BIGINT) AS id FROM {first}"]
    for n, statement in enumerate(statements):
        name = first if n == 0 else f"step{n}"
        expressions.append(f"{name} AS (\n{statement.for_postgres(f's{n}_')}\n)")
        if n and statement.returns:
            answers.append(f"SELECT {n}, id FROM {name}")
    return f"WITH {', '.join(expressions)}\n{' UNION ALL '.join(answers)}"


async def _rows(cursor: psycopg.AsyncCursor[Row]) -> list[Row]:
    return await cursor.fetchall() if cursor.description else []


async def _applied(connection: psycopg.AsyncConnection[Row]) -> set[str]:
    cursor = await connection.execute("SELECT to_regclass('migrations') AS ledger")
    if not [row for row in await cursor.fetchall() if row["ledger"]]:
        return set()
    cursor = await connection.execute("SELECT name FROM migrations")
    return {row["name"] for row in await cursor.fetchall()}


def _query(text: str) -> Any:
    return text  # psycopg wants a literal; ours come from files of the project


def _unavailable(error: Exception) -> Unavailable:
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return Unavailable("PostgreSQL: the schema is not up to date; run `keyturn migrate`")
    return Unavailable(f"PostgreSQL: {type(error).__name__}")
