"""The connections of a process to the primary: at most so many, kept for the next call.

What a call waits for is one of so many permits. Whoever has one takes an idle connection or makes a new one. Giving back never waits,
so a call that is cancelled or runs out of time cannot lose a connection, and many calls that wait do not hold up those that end.
(The driver's own pool hands connections over under a lock that everybody queues for. With some hundred calls waiting, connections
went to calls that had given up, and then waited in the same queue to be given back: a receiver refused everything for minutes.)
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from shared.store.database.postgres.connection import CONNECT_SECONDS, PostgresConnection
from shared.store.database.postgres.primary import Primary
from shared.store.database.postgres.reachable import NoConnection, Reachability
from shared.store.database.postgres.servers import Server, servers_of

WAIT_SECONDS = 5.0  # for a connection
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 1.0  # between two attempts to connect
LIFE_SECONDS = 3600.0  # of a connection, a little less or more: a server keeps plans and memory for each
IDLE_SECONDS = 600.0  # after which a connection that nobody needed is closed
RENEW_SECONDS = 1.0  # the shortest time between two renewals of all connections
CLOSED = "this process has closed its connections"


class Pool:
    """Gives connections to the primary, and none to a server that is no longer the primary."""

    def __init__(
        self, primary: Primary, reachability: Reachability, options: dict[str, Any], *, connections: int
    ) -> None:
        self.primary = primary
        self.reachability = reachability
        self._options = options
        self._permits = asyncio.Semaphore(connections)
        self._idle: deque[tuple[float, PostgresConnection]] = deque()  # and since when; the one used last is at the end
        self._given: set[PostgresConnection] = set()
        self._making: set[asyncio.Task[PostgresConnection]] = set()
        self._timer: asyncio.TimerHandle | None = None  # runs while connections are idle
        self._renewed_at = 0.0
        self._closed = False
        primary.changed = self.leave_old_primary

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[PostgresConnection]:
        """A connection for the time of the block. NoConnection where none can be had in time: its text says why."""
        connection = await self._take()
        try:
            yield connection
        finally:
            self._given.discard(connection)
            self._keep(connection)

    def connect_to(self, server: Server) -> Coroutine[Any, Any, PostgresConnection]:
        """A new connection to one server, whether it is the primary or not. It does not count."""
        return PostgresConnection.to(server, self.primary, **self._options)

    def leave_old_primary(self) -> None:
        """Calls that wait for an answer of the old primary fail now, and do not wait for a network that never answers."""
        for connection in self._given:
            if connection.is_old:
                connection.abandon()

    def renew(self) -> None:
        """Use no present connection again: it may lead to a server that was demoted."""
        if (now := time.monotonic()) - self._renewed_at >= RENEW_SECONDS:
            self._renewed_at = now
            self._close_idle()

    def close(self) -> None:
        """Give no more connections: calls that wait for one, or come later, get NoConnection. Those in use are closed when their calls
        end."""
        self._closed = True
        self._close_idle()
        if self._timer is not None:
            self._timer.cancel()
        for making in self._making:
            making.cancel()

    async def _take(self) -> PostgresConnection:
        give_up_at = time.monotonic() + WAIT_SECONDS
        while True:
            await self._permit(give_up_at)
            connection = self._idle_one() or await self._new_one(give_up_at)
            if self._is_of_use(connection):
                self._given.add(connection)
                return connection
            self._keep(connection)  # another primary was found, or the pool was closed, before we heard that it is made

    async def _permit(self, give_up_at: float) -> None:
        if not self._permits.locked():
            await self._permits.acquire()  # at once
        else:
            try:
                async with asyncio.timeout(max(0.0, give_up_at - time.monotonic())):
                    await self._permits.acquire()
            except TimeoutError:
                raise (NoConnection(CLOSED) if self._closed else self.reachability.why()) from None
        if self._closed:
            self._permits.release()  # for whoever waits behind this call: they are told the same at once
            raise NoConnection(CLOSED)

    def _idle_one(self) -> PostgresConnection | None:
        while self._idle:
            _, connection = self._idle.pop()
            if self._is_of_use(connection) and not connection.has_news:
                return connection
            connection.drop()
        return None

    async def _new_one(self, give_up_at: float) -> PostgresConnection:
        """A new connection for whoever has a permit. Where none comes in time, the permit goes back when that is over."""
        making = asyncio.create_task(self._make(give_up_at))
        self._making.add(making)
        making.add_done_callback(self._making.discard)
        try:
            # It is not cancelled when the time is up: the driver would wait for a silent server then.
            await asyncio.wait({making}, timeout=max(0.0, give_up_at - time.monotonic()))
        except BaseException:
            making.add_done_callback(self._came_late)
            raise
        error = self._why_not(making)
        if error is None:
            return making.result()
        making.add_done_callback(self._came_late)
        raise error

    def _why_not(self, making: asyncio.Task[PostgresConnection]) -> BaseException | None:
        """What a call is told that waited for this connection; None: it may have it."""
        if not making.done():
            return self.reachability.why_not_made()
        if making.cancelled():  # by `close`: nobody has cancelled the call
            return NoConnection(CLOSED)
        error = making.exception()  # of whatever kind: what the server says to a new connection is no call's fault
        return self.reachability.why_not_made() if isinstance(error, psycopg.Error) else error

    async def _make(self, give_up_at: float) -> PostgresConnection:
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                connection = await PostgresConnection.connect(
                    reachability=self.reachability, primary=self.primary, **self._options
                )
            except psycopg.OperationalError:
                if time.monotonic() + pause > give_up_at:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                connection.made_at = time.monotonic()
                connection.expires_at = connection.made_at + LIFE_SECONDS * random.uniform(0.9, 1.0)
                return connection

    def _came_late(self, making: asyncio.Task[PostgresConnection]) -> None:
        """Nobody waits for this connection any more: the next call may have it."""
        if making.cancelled() or making.exception() is not None:
            self._permits.release()
        else:
            self._keep(making.result())

    def _keep(self, connection: PostgresConnection) -> None:
        """Keep a connection for the next call, if it is as good as new."""
        if self._is_of_use(connection) and connection.is_at_rest:
            self._idle.append((time.monotonic(), connection))
            self._timer = self._timer or self._in_time(IDLE_SECONDS)
        else:
            connection.drop()
        self._close_unneeded()
        self._permits.release()

    def _in_time(self, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._look_for_unneeded)

    def _look_for_unneeded(self) -> None:
        """Close connections in time also where no call comes any more."""
        self._close_unneeded()
        left = IDLE_SECONDS - (time.monotonic() - self._idle[0][0]) if self._idle else None
        self._timer = self._in_time(max(0.0, left)) if left is not None else None

    def _close_unneeded(self) -> None:
        while self._idle and time.monotonic() - self._idle[0][0] >= IDLE_SECONDS:
            self._idle.popleft()[1].drop()

    def _is_of_use(self, connection: PostgresConnection) -> bool:
        is_young = self._renewed_at <= connection.made_at and time.monotonic() < connection.expires_at
        return is_young and not (self._closed or connection.is_old)

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop()[1].drop()


def new_pool(url: str, connections: int) -> Pool:
    """A pool of at most so many connections, none of them made yet. ConfigurationError for a URL that cannot be read."""
    primary = Primary(servers_of(url))
    options = {
        "cursor_factory": psycopg.AsyncRawCursor,  # PostgreSQL's own $1: nothing to translate on each call
        "autocommit": True,
        "row_factory": psycopg.rows.dict_row,
        "prepare_threshold": 1,
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 5,  # a server that vanished is noticed after some ten seconds
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        "application_name": "keyturn",
    }
    return Pool(primary, Reachability(url, primary.servers), options, connections=connections)
