"""Keys whose time has come: their lease or delay has ended, or their wake is lost or late.

A key that belongs to another server since the list of servers was changed is moved there instead.
"""

from __future__ import annotations

import asyncio
from time import monotonic

import redis

from shared import keys, log, metrics
from shared.background import survived
from shared.clock import now_ms
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.lane import Lane, Recovered
from shared.lane.elsewhere import move
from shared.lane.garbage import is_garbage, purge
from shared.pipeline import Pipeline
from shared.redis_servers import RedisServer
from shared.value import value
from workers.upkeep.housekeeping_duty import AT_ONCE

LOOK_SECONDS = 0.5
SIGN_SECONDS = 5.0  # between two signs of life


@value
class _Page:
    """What a look at some of the due keys came to."""

    keys: int
    next_seconds: float  # until the next key is due
    skip: int  # keys that stay due although they were looked at: the next page begins behind them


class DueKeys:
    """Wakes the due keys of one server. A key that cannot be looked at stays due and holds up none of the others."""

    every_seconds = LOOK_SECONDS

    def __init__(self, pipe: Pipeline, server: RedisServer) -> None:
        self._lanes = pipe.lanes
        self._server = server
        self._signed = 0.0  # monotonic: when the last sign of life was left

    async def look(self) -> float:
        """Wake all keys that are due. Gives the seconds until the next one is, if that is sooner than the usual pause."""
        soonest = self.every_seconds
        for lane in self._lanes:
            page = await self._wake_page(lane, 0)
            while page.keys == AT_ONCE:
                await self._sign()  # a long look is one, too
                page = await self._wake_page(lane, page.skip)
            soonest = min(soonest, page.next_seconds)
        await self._sign()
        return soonest

    async def _sign(self) -> None:
        """Leave a sign of life, so that somebody can be told when no housekeeper has been here for long."""
        if monotonic() - self._signed > SIGN_SECONDS:
            sign = self._server.client.set(keys.HOUSEKEEPER, now_ms(), ex=keys.HOUSEKEEPER_TTL_S)
            await self._server.asked(sign)
            self._signed = monotonic()

    async def _wake_page(self, lane: Lane, skip: int) -> _Page:
        due, next_seconds = await lane.due(self._server, AT_ONCE, skip=skip)
        outcomes = await asyncio.gather(*(self._wake(lane, key) for key in due), return_exceptions=True)
        failed: dict[str, Exception] = {}
        for key, outcome in zip(due, outcomes, strict=True):
            if isinstance(outcome, Recovered):
                _report(lane, key, outcome)
            elif isinstance(outcome, Unavailable) and lane.servers.of_key(key) is self._server:
                raise outcome
            elif isinstance(outcome, Exception):
                failed[key] = outcome
        for key, error in [*failed.items()][:1]:  # one line for all: there may be hundreds, twice a second
            survived("housekeeper", "keys not looked at", error, lane=lane.name, key=key, count=len(failed))
        return _Page(len(due), next_seconds, skip + len(failed))

    async def _wake(self, lane: Lane, key: str) -> Recovered:
        """Wake a key, or move it to its own server. One that holds garbage is cleaned first."""
        if lane.servers.of_key(key) is not self._server:
            await move(lane, self._server, key)
            return Recovered.NOTHING
        reach("housekeep.before_due_key")
        try:
            return await lane.recover(key)
        except redis.ResponseError as error:
            if not is_garbage(error):
                raise
            await purge(lane, key)
            return await lane.recover(key)


def _report(lane: Lane, key: str, recovered: Recovered) -> None:
    if recovered is not Recovered.NOTHING:
        metrics.RECOVERED.labels(lane.name, recovered.name.lower()).inc()
    if recovered is Recovered.LEASE_EXPIRED:
        metrics.LEASE_LOST.inc()
        log.get().warning("lease expired, woken again", lane=lane.name, key=key)
