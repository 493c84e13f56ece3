"""The pool of connections, and what is set on each.

A connection pooler such as pgbouncer may stand in between. In transaction mode each transaction may run on another server
connection, so nothing may be left in a session: our settings then go with each transaction, no statement is prepared, and
a call costs more round trips.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Self

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from shared.errors import ConfigurationError
from shared.store.database import Row
from shared.store.database.postgres.composer import Query
from shared.store.database.postgres.reachable import Reachability

POOL_SIZE = 8
WAIT_SECONDS = 5.0  # for a connection
OPTIONS = {
    "lock_timeout": "500ms",  # one wait: a call that may wait for longer runs again
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "30s",
    # Each statement of a turn has its index. A plan that was made while a table was small must not read all of it when it is large.
    "enable_seqscan": "off",
    "enable_mergejoin": "off",
}


class PostgresConnection(psycopg.AsyncConnection[Row]):
    """A connection that knows whether it goes straight to the server."""

    pooled = False  # a pooler stands between us and the server

    @classmethod
    async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """As psycopg's, and notes in `reachability` what came of it."""
        reachability: Reachability = kwargs.pop("reachability")
        try:
            connection = await super().connect(conninfo, **kwargs)
        except psycopg.Error as error:
            reachability.failed(error)
            raise
        reachability.connected()
        return connection


class Pool(AsyncConnectionPool[PostgresConnection]):
    """A pool that says why a connection could not be had."""

    reachability: Reachability

    async def getconn(self, timeout: float | None = None) -> PostgresConnection:
        try:
            return await super().getconn(timeout)
        except PoolTimeout:
            raise self.reachability.why() from None


def new_pool(url: str) -> Pool:
    """A pool that is not open yet. ConfigurationError for a URL that cannot be read."""
    _check(url)
    reachability = Reachability(url)
    pool = Pool(
        url,
        connection_class=PostgresConnection,
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
            "keepalives_idle": 5,  # a server that vanished is noticed after some ten seconds
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 10_000,
            "application_name": "keyturn",
            "reachability": reachability,
        },
        open=False,
    )
    pool.reachability = reachability
    return pool


async def send(connection: PostgresConnection, queries: list[Query], *, transaction: bool) -> list[list[Row]]:
    """The rows of each query. One round trip for all of them, unless a pooler stands in between."""
    if connection.pooled:
        cursors = await _send_pooled(connection, queries)
    elif len(queries) == 1:
        cursors = [await connection.execute(*queries[0])]
    else:
        async with connection.pipeline(), connection.transaction() if transaction else nullcontext():
            cursors = [await connection.execute(*query) for query in queries]
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]


async def _send_pooled(connection: PostgresConnection, queries: list[Query]) -> list[psycopg.AsyncCursor[Row]]:
    """Run queries through a pooler: a round trip for each of them and three more.

    No pipeline: the driver may end one with a flush request, and the pooler then keeps a server connection for a client
    that has nothing more to say.
    """
    async with connection.transaction():
        await connection.execute(setting(OPTIONS, local=True))
        return [await connection.execute(*query) for query in queries]


def behind_pooler(connection: psycopg.AsyncConnection[Any], server_pid: int) -> bool:
    """Whether a pooler answered: it tells clients a process id of its own making. `server_pid` is pg_backend_pid()."""
    return connection.info.backend_pid != server_pid


def setting(options: Mapping[str, str], *, local: bool) -> bytes:
    """A query that makes these settings, for a transaction (`local`) or for the session."""
    settings = (f"set_config('{name}', '{value}', {local})" for name, value in options.items())
    return f"SELECT {', '.join(settings)}".encode()


async def _configure(connection: PostgresConnection) -> None:
    """Give a new connection our settings, unless a pooler is in between: then they would stay with another's session."""
    settings = setting(OPTIONS, local=False) + b" WHERE pg_backend_pid() = $1"
    connection.pooled = not await (await connection.execute(settings, [connection.info.backend_pid])).fetchall()
    if connection.pooled:
        connection.prepare_threshold = None


def _check(url: str) -> None:
    """Refuse a URL that cannot be read: the driver would quote it on every attempt, with the password in it."""
    try:
        port = psycopg.conninfo.conninfo_to_dict(url).get("port")
    except psycopg.ProgrammingError:
        port = "none"
    if port is not None and not all(number.isdigit() for number in str(port).split(",") if number):
        raise ConfigurationError("DATABASE_URL cannot be read; escape special characters in it") from None
