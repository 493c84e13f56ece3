"""Migrations of a PostgreSQL database, all in one transaction: after a crash none of them is there.

A migration may take its time, but it waits for a table only shortly: everybody else waits behind it meanwhile. So it tries
again until it gets all its tables.
"""

from __future__ import annotations

import asyncio
import random
import time

import psycopg

from shared import log
from shared.clock import now_ms
from shared.store.database import Row
from shared.store.database.migrations import LEDGER, migrations
from shared.store.database.postgres.connection import setting
from shared.store.database.postgres.errors import translated
from shared.store.database.postgres.pool import Pool

MIGRATION_SECONDS = 600.0  # how long a migration tries to get its tables
_LOCK = 0x6B657974  # the advisory lock that keeps two migrations apart
_MIGRATING = {
    **dict.fromkeys(("statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout"), "0"),
    **dict.fromkeys(("enable_seqscan", "enable_mergejoin"), "on"),
}
_TABLE_WAIT = {"lock_timeout": "200ms"}  # less than a commit waits for a lock


async def migrate(pool: Pool) -> list[str]:
    """Apply what is missing and name it. Of several processes that do so, one works and the others find it done."""
    give_up_at = time.monotonic() + MIGRATION_SECONDS
    while True:
        try:
            return await _migrate(pool)
        except psycopg.errors.LockNotAvailable as error:
            if time.monotonic() > give_up_at:
                raise translated(error, writing=True) from None
            log.get().warning("migration waits for a table that is in use")
            await asyncio.sleep(random.uniform(0.5, 1.5))
        except Exception as error:
            raise translated(error, writing=True) from None


async def pending(pool: Pool) -> list[str]:
    """What `migrate` would apply."""
    try:
        async with pool.connection() as connection:
            applied = await _applied(connection)
    except Exception as error:
        raise translated(error, writing=False) from None
    return [migration.name for migration in migrations("postgres") if migration.name not in applied]


async def _migrate(pool: Pool) -> list[str]:
    done = []
    async with pool.connection() as connection, connection.transaction():
        await connection.execute(setting(_MIGRATING, local=True))
        await connection.execute("SELECT pg_advisory_xact_lock($1)", [_LOCK])
        await connection.execute(setting(_TABLE_WAIT, local=True))
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


async def _applied(connection: psycopg.AsyncConnection[Row]) -> set[str]:
    cursor = await connection.execute("SELECT to_regclass('migrations') AS ledger")
    if not [row for row in await cursor.fetchall() if row["ledger"]]:
        return set()
    cursor = await connection.execute("SELECT name FROM migrations")
    return {row["name"] for row in await cursor.fetchall()}
