"""PostgreSQL: a pool of connections, for processes of many machines. A call costs one round trip (postgres/composer.py).

After a crash, every write that was answered is there, and of any other write all or nothing.
"""

from __future__ import annotations

import asyncio
import time

import psycopg

from shared.errors import Unavailable
from shared.store.database import Row, Step
from shared.store.database.postgres.composer import one_by_one, rows_of_steps, together
from shared.store.database.postgres.connection import send
from shared.store.database.postgres.errors import real_error, reconnects, translated
from shared.store.database.postgres.migrating import migrate, pending
from shared.store.database.postgres.pool import Pool, new_pool
from shared.store.database.postgres.watch import PrimaryWatch
from shared.store.database.statements import storable_steps

CALL_SECONDS = 35.0  # longer than the server lets a statement run: then it is the network that does not answer
TRIES = 5  # of a transaction that lost a deadlock or a serialisation race
LOCK_SECONDS = 10.0  # how long a call waits for rows that others keep locked, unless it is to raise Locked


class PostgresDatabase:
    """A database on a server, or on a primary and its replicas. While there is no primary, calls raise Unavailable."""

    dialect = "postgres"
    place = ""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._watch = PrimaryWatch(pool.primary, pool.connect_to)

    @classmethod
    async def open(cls, url: str, connections: int) -> PostgresDatabase:
        """Opens even while the server is down: calls then raise Unavailable until it is back."""
        return cls(new_pool(url, connections))

    async def write(self, *steps: Step, can_linger: bool = False, raise_if_locked: bool = False) -> list[list[Row]]:
        # `can_linger` changes nothing: the server lets concurrent commits share a sync by itself.
        try:
            return await self._persist(steps, transaction=True, raise_if_locked=raise_if_locked)
        except (UnicodeEncodeError, psycopg.DataError):  # it was not sent, or all of it was refused
            return await self._persist(storable_steps(steps), transaction=True, raise_if_locked=raise_if_locked)

    async def read(self, *steps: Step) -> list[list[Row]]:
        return await self._persist(steps, transaction=False)

    async def migrate(self) -> list[str]:
        return await migrate(self._pool)

    async def pending_migrations(self) -> list[str]:
        return await pending(self._pool)

    async def close(self) -> None:
        self._pool.close()  # first: a connection that is made asks for another look at the servers
        await self._watch.close()

    async def _persist(
        self, steps: tuple[Step, ...], *, transaction: bool, raise_if_locked: bool = False
    ) -> list[list[Row]]:
        """Run the steps, again after a lost race and, unless it is to raise Locked, after a wait for a lock."""
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
                    if reconnects(error):
                        self._pool.renew()
                    raise translated(error, writing=transaction) from None

    async def _run(self, steps: tuple[Step, ...], *, transaction: bool) -> list[list[Row]]:
        queries = together(steps) if transaction else one_by_one(steps)
        async with asyncio.timeout(CALL_SECONDS), self._pool.connection() as connection:
            return rows_of_steps(steps, await send(connection, queries, transaction=transaction))
