"""Checks of idle connections. Where one was lost, the others probably were too: a check now spares the next calls."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from psycopg_pool import AsyncConnectionPool

from shared.background import end_tasks
from shared.store.database.postgres.connection import PostgresConnection
from shared.store.database.postgres.errors import passes, reconnects

RECONNECT_SECONDS = 1.0  # the shortest time between two renewals of all connections


class ConnectionChecks:
    """Checks or renews the connections of a pool in the background, one check at a time."""

    def __init__(self, pool: AsyncConnectionPool[PostgresConnection]) -> None:
        self._pool = pool
        self._checking: asyncio.Task[None] | None = None

    def after(self, error: BaseException) -> None:
        """Check the connections if this error is an outage. Returns at once."""
        if passes(error, writing=False) and (self._checking is None or self._checking.done()):
            self._checking = asyncio.create_task(self._renew() if reconnects(error) else self._check())

    async def close(self) -> None:
        if self._checking is not None:
            await end_tasks(self._checking)

    async def _check(self) -> None:
        with suppress(Exception):
            await self._pool.check()

    async def _renew(self) -> None:
        with suppress(Exception):
            await self._pool.drain()
        await asyncio.sleep(RECONNECT_SECONDS)
