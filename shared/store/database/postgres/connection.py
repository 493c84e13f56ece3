"""One connection, what is set on it, and how queries are sent over it.

A connection pooler such as pgbouncer may stand in between. In transaction mode each transaction may run on another server
connection, so nothing may be left in a session: our settings then go with each transaction, no statement is prepared, and
a call costs more round trips.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any, Self

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from shared.store.database import Row
from shared.store.database.postgres.composer import Query
from shared.store.database.postgres.finding import connect_to_primary
from shared.store.database.postgres.primary import UNTOLD, Primary, ServerStanding
from shared.store.database.postgres.reachable import Reachability
from shared.store.database.postgres.servers import Server

CONNECT_SECONDS = 3  # one server has so long to let us in
FIRST_ANSWER_SECONDS = 15  # and then so long for the first query: a pooler lets us in at once and makes us wait there
OPTIONS = {
    "lock_timeout": "500ms",  # one wait: a call that may wait for longer runs again
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "30s",
    # Each statement of a turn has its index. A plan that was made while a table was small must not read all of it when it is large.
    "enable_seqscan": "off",
    "enable_mergejoin": "off",
}


class PostgresConnection(psycopg.AsyncConnection[Row]):
    """A connection to the primary, with our settings. It knows whether it goes straight to the server."""

    pooled = False  # a pooler stands between us and the server
    made_at = expires_at = 0.0  # monotonic
    server: Server
    primary: Primary
    standing: ServerStanding

    @classmethod
    async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """A connection to the primary, whichever server of `primary` that is. Notes in `reachability` what came of it."""
        reachability: Reachability = kwargs.pop("reachability")
        primary: Primary = kwargs.pop("primary")
        try:
            connection = await connect_to_primary(primary, lambda server: cls.to(server, primary, **kwargs))
        except psycopg.Error as error:
            reachability.failed(error)
            raise
        reachability.connected()
        return connection

    @classmethod
    async def to(cls, server: Server, primary: Primary, **kwargs: Any) -> Self:
        """A connection to this server, whatever it is. An OperationalError also where it does not answer in time."""
        connection = await super().connect(server.conninfo, **kwargs)
        connection.server, connection.primary = server, primary
        try:
            async with asyncio.timeout(FIRST_ANSWER_SECONDS):
                await connection._introduce()
        except BaseException as error:
            await connection.close()
            if isinstance(error, TimeoutError):
                raise psycopg.OperationalError(f"{server.name} is silent") from None
            raise
        return connection

    @property
    def is_old(self) -> bool:
        """Whether another server has become the primary since this connection was made."""
        return self.primary.is_old(self.standing)

    @property
    def is_at_rest(self) -> bool:
        """Whether the next answer belongs to the next query. A task that is cancelled may leave a query or a pipeline under way."""
        is_in_pipeline = self._pipeline is not None or self.pgconn.pipeline_status != PipelineStatus.OFF
        return self.pgconn.transaction_status == TransactionStatus.IDLE and not is_in_pipeline

    @property
    def has_news(self) -> bool:
        """Whether the server has said something that nobody asked: mostly that it ends the connection."""
        news = select.poll()
        news.register(self.fileno(), select.POLLIN)
        return bool(news.poll(0))

    async def look(self) -> ServerStanding:
        """How the server stands now."""
        try:
            cursor = await self.execute(f"SELECT {self.primary.columns}".encode(), prepare=False)
        except UNTOLD as error:
            self.primary.cannot_tell(error)
            cursor = await self.execute(f"SELECT {self.primary.columns}".encode(), prepare=False)
        [row] = await cursor.fetchall()
        self.standing = ServerStanding.read(row)
        return self.standing

    async def _introduce(self) -> None:
        """Make our settings, unless a pooler is in between: then they would stay with another's session."""
        settings = setting(OPTIONS, local=False) + b" WHERE pg_backend_pid() = $1"
        self.pooled = not await (await self.execute(settings, [self.info.backend_pid])).fetchall()
        if self.pooled:
            self.prepare_threshold = None
        await self.look()

    def drop(self) -> None:
        """Close it. Waits for nothing."""
        self.pgconn.finish()

    def abandon(self) -> None:
        """End what runs on it at once, without a word to the server: the call fails as if the network had."""
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


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
    primary = connection.primary
    async with connection.transaction():
        query = setting(OPTIONS, local=True) + f", {primary.columns}".encode()
        [row] = await (await connection.execute(query)).fetchall()
        connection.standing = ServerStanding.read(row)  # each transaction may go to another server
        if connection.standing.timeline:
            primary.admit(connection.server, connection.standing)
        return [await connection.execute(*query) for query in queries]


def behind_pooler(connection: psycopg.AsyncConnection[Any], server_pid: int) -> bool:
    """Whether a pooler answered: it tells clients a process id of its own making. `server_pid` is pg_backend_pid()."""
    return connection.info.backend_pid != server_pid


def setting(options: Mapping[str, str], *, local: bool) -> bytes:
    """A query that makes these settings, for a transaction (`local`) or for the session."""
    settings = (f"set_config('{name}', '{value}', {local})" for name, value in options.items())
    return f"SELECT {', '.join(settings)}".encode()
