"""One listener at a time per account. An efficiency device: should two listen for a moment, the journal drops what came twice."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from pathlib import Path

from shared import log
from shared.background import end_tasks, survived
from shared.errors import Unavailable
from shared.ids import fresh_id
from shared.redis_servers import Script, Servers

_HERE = Path(__file__).parent
LEAD, RESIGN = (Script.load(_HERE / f"{name}.lua") for name in ("lead", "resign"))


class Leader:
    """Tries to lead, and keeps the lead, from `async with` on. Ends by resigning, so a successor begins at once.

    While the lead leaves a server that is drained, whoever leads there also gets it at the new place, and nobody else does. It
    keeps the old one until that runs out: another process may not know yet that it leaves.
    """

    def __init__(self, servers: Servers, name: str, *, ttl: timedelta, every: timedelta) -> None:
        self._servers = servers
        self._name = name
        self._token = fresh_id()
        self._ttl_ms = int(ttl.total_seconds() * 1000)
        self._every = every.total_seconds()
        self.leads = asyncio.Event()
        self.lost = asyncio.Event()
        self.lost.set()

    async def __aenter__(self) -> Leader:
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        await end_tasks(self._keeping)
        for server in self._servers.may_have(self._name):
            with contextlib.suppress(Exception):  # then it runs out
                await server.call(RESIGN, [self._name], [self._token])

    async def _keep(self) -> None:
        while True:
            try:
                self._note(await self._lead())
            except Exception as error:  # nobody else can take it either: who leads goes on, who does not waits
                survived("lead", "lead not renewed", error, name=self._name)
            await asyncio.sleep(self._every)

    async def _lead(self) -> bool:
        for server in self._servers.leaving(self._name):
            with contextlib.suppress(Unavailable):
                holder = await server.asked(server.client.get(self._name))
                if holder is not None and holder != self._token.encode():
                    return False
        return bool(await self._servers.of_key(self._name).call(LEAD, [self._name], [self._token, self._ttl_ms]))

    def _note(self, ours: bool) -> None:
        if ours != self.leads.is_set():
            log.get().info("leading" if ours else "no longer leading", name=self._name)
        now, before = (self.leads, self.lost) if ours else (self.lost, self.leads)
        now.set()
        before.clear()
