"""Keeps the leases of one process: one task renews all of them, so a turn costs no timer of its own.

A renewal also brings what the key's state says meanwhile: that another worker has the key, that the user said /stop, or that mail
waits behind the running turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from shared import keys, metrics
from shared.background import end_tasks, survived
from shared.failpoints import reach
from shared.lane.lease import Lease
from shared.redis_servers import RedisServer, Script

RENEW = Script.load(Path(__file__).parent / "renew.lua")
RENEW_AT_ONCE = 200  # leases per call: keeps a call well below a millisecond of Redis' time


class Renewal:
    """Renews what it is told to hold until it is told to let go. A renewal that fails ends no turn: the commit decides."""

    def __init__(self, lane_name: str, lease_ms: int, every: timedelta) -> None:
        self._lane_name = lane_name
        self._lease_ms = lease_ms
        self._every_seconds = every.total_seconds()
        self._held: dict[str, Lease] = {}
        self._renewing: asyncio.Task[None] | None = None

    def hold(self, lease: Lease) -> None:
        """Renew it from now on."""
        self._held[lease.token] = lease
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew_held())

    def let_go(self, lease: Lease) -> None:
        """Renew it no longer. May be repeated."""
        self._held.pop(lease.token, None)

    async def close(self) -> None:
        """Renew nothing any more: leases that are still held run out."""
        if self._renewing is not None:
            await end_tasks(self._renewing)

    async def _renew_held(self) -> None:
        while True:
            await asyncio.sleep(self._every_seconds)
            by_server: dict[RedisServer, list[Lease]] = {}
            for lease in self._held.values():
                by_server.setdefault(lease.server, []).append(lease)
            for server, leases in by_server.items():
                for start in range(0, len(leases), RENEW_AT_ONCE):
                    try:
                        await self.renew(server, leases[start : start + RENEW_AT_ONCE])
                    except Exception as error:
                        survived("renew", "leases not renewed", error, lane=self._lane_name)

    async def renew(self, server: RedisServer, leases: Sequence[Lease]) -> None:
        """Renew these once, and tell each of them what has become of its key."""
        leases = [lease for lease in leases if lease.token in self._held]  # some may have ended since they were listed
        names = [keys.due(self._lane_name)]
        for lease in leases:
            names += [keys.state(self._lane_name, lease.key), lease.wake.job_key, keys.mail(self._lane_name, lease.key)]
        args = [self._lease_ms, *(item for lease in leases for item in (lease.token, lease.key))]
        reach("renew.before")
        answer = await server.call(RENEW, names, args)
        for lease, renewed, mail in zip(leases, answer[::2], answer[1::2], strict=True):
            if lease.token not in self._held:
                continue
            if not renewed:
                metrics.LEASE_LOST.inc()
                lease.lose()
            elif renewed > 1:
                lease.drop_until(renewed)
            if mail > 1 and lease.on_held_up is not None:
                lease.on_held_up()
