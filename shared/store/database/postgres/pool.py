"""The pool of connections to the primary."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from shared.store.database.postgres.connection import CONNECT_SECONDS, PostgresConnection
from shared.store.database.postgres.primary import Primary
from shared.store.database.postgres.reachable import Reachability
from shared.store.database.postgres.servers import Server, servers_of

WAIT_SECONDS = 5.0  # for a connection


class Pool(AsyncConnectionPool[PostgresConnection]):
    """A pool that says why a connection could not be had, and gives none to a server that is no longer the primary."""

    reachability: Reachability
    primary: Primary
    connect_to: Callable[
        [Server], Coroutine[Any, Any, PostgresConnection]
    ]  # one server, whether it is the primary or not

    async def getconn(self, timeout: float | None = None) -> PostgresConnection:
        give_up_at = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            try:
                connection = await super().getconn(max(0.0, give_up_at - time.monotonic()))
            except PoolTimeout:
                raise self.reachability.why() from None
            self._given.add(connection)
            if not connection.is_old:
                return connection
            await connection.close()
            await self.putconn(connection)

    async def putconn(self, conn: PostgresConnection) -> None:
        self._given.discard(conn)
        if conn.is_in_pipeline:
            await conn.close()  # a call that was cancelled left it so: what it would answer next belongs to that call
        await super().putconn(conn)

    def leave_old_primary(self) -> None:
        """Calls that wait for an answer of the old primary fail now, and do not wait for a network that never answers."""
        for connection in self._given:
            if connection.is_old:
                connection.abandon()

    @cached_property
    def _given(self) -> set[PostgresConnection]:
        return set()


def new_pool(url: str, connections: int) -> Pool:
    """A pool of at most so many connections that is not open yet. ConfigurationError for a URL that cannot be read."""
    primary = Primary(servers_of(url))
    reachability = Reachability(url, primary.servers)
    connecting = {
        "cursor_factory": psycopg.AsyncRawCursor,  # PostgreSQL's own $1: nothing to translate on each call
        "autocommit": True,
        "row_factory": dict_row,
        "prepare_threshold": 1,
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 5,  # a server that vanished is noticed after some ten seconds
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        "application_name": "keyturn",
    }
    pool = Pool(
        url,
        connection_class=PostgresConnection,
        min_size=1,
        max_size=connections,
        timeout=WAIT_SECONDS,
        reconnect_timeout=WAIT_SECONDS,
        kwargs={**connecting, "reachability": reachability, "primary": primary},
        open=False,
    )
    pool.reachability, pool.primary = reachability, primary
    pool.connect_to = lambda server: PostgresConnection.to(server, primary, **connecting)
    primary.changed = pool.leave_old_primary
    return pool
