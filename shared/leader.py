"""One listener at a time per account. An efficiency device: should two listen for a moment, the journal drops what came twice."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from pathlib import Path

from shared import log
from shared.background import end_tasks, survived
from shared.ids import fresh_id
from shared.redis_servers import RedisServer, Script

_HERE = Path(__file__).parent
LEAD, RESIGN = (Script.load(_HERE / f"{name}.lua") for name in ("lead", "resign"))


class Leader:
    """Tries to lead, and keeps the lead, from `async with` on. Ends by resigning, so a successor begins at once."""

    def __init__(self, server: RedisServer, name: str, *, ttl: timedelta, every: timedelta) -> None:
        self._server = server
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
        with contextlib.suppress(Exception):  # then it runs out
            await self._server.call(RESIGN, [self._name], [self._token])

    async def _keep(self) -> None:
        while True:
            try:
                self._note(bool(await self._server.call(LEAD, [self._name], [self._token, self._ttl_ms])))
            except Exception as error:  # nobody else can take it either: who leads goes on, who does not waits
                survived("lead", "lead not renewed", error, name=self._name)
            await asyncio.sleep(self._every)

    def _note(self, ours: bool) -> None:
        if ours != self.leads.is_set():
            log.get().info("leading" if ours else "no longer leading", name=self._name)
        now, before = (self.leads, self.lost) if ours else (self.lost, self.leads)
        now.set()
        before.clear()
