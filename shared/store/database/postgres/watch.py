"""Looks at the servers beside the primary: one of them may have been promoted while the old primary still answers us, or is silent.

A lost connection is noticed by the calls themselves. What they cannot notice: a primary that was cut off from its replicas and
not from us goes on taking writes, and one whose machine is frozen keeps a call waiting. So each process keeps one connection
to every other server and asks it every two seconds. Where DATABASE_URL names one server, there is nothing to look at.

A process that stood still may have missed that its primary died, that another was promoted and that the old one is back. So each
new connection to the primary is used only after another look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg

from shared.background import end_tasks, survived
from shared.store.database.postgres.connection import FIRST_ANSWER_SECONDS, PostgresConnection
from shared.store.database.postgres.primary import Primary
from shared.store.database.postgres.servers import Server

LOOK_SECONDS = 2.0
LOOK_NOW_SECONDS = 2.0  # a new connection waits no longer for servers that are silent


class PrimaryWatch:
    """Tells `primary` of a server that was promoted."""

    def __init__(self, primary: Primary, connect: Callable[[Server], Coroutine[Any, Any, PostgresConnection]]) -> None:
        self._primary = primary
        self._connect = connect
        self._connections: dict[Server, PostgresConnection] = {}
        self._looking = asyncio.Lock()  # one look at a time
        self._next_look: asyncio.Task[None] | None = None  # asked for, and not begun yet
        self._looks: set[asyncio.Task[None]] = set()
        primary.look_at_others = self.look_now
        self._task = asyncio.create_task(self._run()) if len(primary.servers) > 1 else None

    async def close(self) -> None:
        if self._task is not None:
            await end_tasks(self._task, *self._looks)
        for server in list(self._connections):
            await self._forget(server)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._primary.server is None:
                continue  # whoever connects first looks at all of them
            async with self._looking:
                await self._look_at_others()

    async def look_now(self) -> None:
        """Look at the others, in a look that begins from now on. Calls that wait for one to begin share it."""
        if self._task is None:
            return
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._begin_look())
            self._looks.add(self._next_look)
            self._next_look.add_done_callback(self._looks.discard)
        # It is not cancelled when the time is up: the driver would wait for the silent server then.
        await asyncio.wait({self._next_look}, timeout=LOOK_NOW_SECONDS)

    async def _begin_look(self) -> None:
        async with self._looking:
            self._next_look = None
            await self._look_at_others()

    async def _look_at_others(self) -> None:
        try:
            if (primary := self._primary.server) is not None:
                await self._forget(primary)
            await asyncio.gather(*(self._look(server) for server in self._primary.others()))
        except Exception as error:
            survived("primary_watch", "other PostgreSQL servers could not be looked at", error)

    async def _look(self, server: Server) -> None:
        try:
            if server not in self._connections:
                self._connections[server] = await self._connect(server)
            async with asyncio.timeout(FIRST_ANSWER_SECONDS):
                standing = await self._connections[server].look()
        except (psycopg.Error, TimeoutError):  # it is away, which is none of our business while it is not the primary
            await self._forget(server)
            return
        if self._primary.is_new(standing):
            self._primary.admit(server, standing)

    async def _forget(self, server: Server) -> None:
        if connection := self._connections.pop(server, None):
            await connection.close()
