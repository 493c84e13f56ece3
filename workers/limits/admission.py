"""The admission that worker processes give their agents: limits for all workers together, in Redis.

| in the way | what happens |
|---|---|
| the provider's cool-down, after a 429 or 529 of anybody | RateLimited |
| LLM__LIMITS: open requests, requests or tokens in a minute | HeldBack |

A wait below PATIENCE is waited here. Where no limit is set, nothing is asked of Redis: workers hear of a cool-down through a
channel, and one that was not listening learns of it by a refusal. A worker that dies gives its permits back by not renewing them.
While Redis is away each worker keeps to a share of the limits (workers/limits/own_share.py).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

from shared import keys, log, metrics
from shared.background import end_tasks, survived
from shared.errors import HeldBack, RateLimited, Unavailable
from shared.failpoints import reach
from shared.ids import fresh_id
from shared.redis_servers import RedisServer, Script, Servers
from workers.agents.model.admission import Permit, ProviderAccount
from workers.limits.cooldowns import Cooldowns, hear_cooldowns
from workers.limits.own_share import LocalLimits
from workers.limits.verdict import AdmissionVerdict, Obstacle

_HERE = Path(__file__).parent
ADMIT, LEAVE, REFUSE, RENEW = (
    Script.load(_HERE / f"{name}.lua") for name in ("admit", "leave", "refuse", "renew_permits")
)
PATIENCE = timedelta(seconds=2)  # a longer wait gives the key back
LONGEST_COOLDOWN_MS = 3_600_000  # a provider that names a longer time is asked once an hour
FULL_WAIT = (2.0, 8.0)  # seconds, where nobody knows when one of the open requests ends
RATE_SPREAD = 0.25  # those who wait for a rate come back up to so much later, and not all at once
TELL_AGAIN_SECONDS = 600.0  # an operator is told of a used-up quota once in so long


class RedisAdmission:
    """A `ProviderAdmission` for all agents of a process."""

    def __init__(self, servers: Servers, *, lease: timedelta, renew_every: timedelta) -> None:
        self._servers = servers
        self._lease_ms = int(lease.total_seconds() * 1000)
        self._renew_seconds = renew_every.total_seconds()
        self._cooldowns = Cooldowns()
        self._local = LocalLimits()
        self._held: defaultdict[str, set[str]] = defaultdict(set)  # permits by account
        self._told: dict[str, float] = {}  # when an operator was told, by account
        self._leaving: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []

    @property
    def _server(self) -> RedisServer:
        """One server counts for all: limits are for all partitions. When it is drained, the next one begins to count anew."""
        return self._servers.of_key(keys.COOLDOWNS)

    def start(self) -> None:
        """Hear of cool-downs and renew permits until `close`. Safe to repeat."""
        if not self._loops:
            heard = hear_cooldowns(self._servers, self._cooldowns)
            self._loops = [asyncio.create_task(heard), asyncio.create_task(self._renew())]

    async def close(self) -> None:
        """Wait until what has ended is given back, as long as Redis answers."""
        await end_tasks(*self._loops)
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def admit(self, account: ProviderAccount, tokens: int) -> Permit:
        cooling = self._cooldowns.wait(account.id)
        if cooling is None and not account.limits.are_set:
            return Permit(account)
        permit, until = Permit(account, fresh_id(), tokens), time.monotonic() + PATIENCE.total_seconds()
        while True:
            verdict = AdmissionVerdict(Obstacle.COOLING, cooling) if cooling is not None else await self._asked(permit)
            if verdict.obstacle is None:
                return await self._when_it_is_time(permit, verdict.wait)
            if time.monotonic() + verdict.wait > until:
                raise _told_to_wait(account, verdict)
            await asyncio.sleep(verdict.wait)
            cooling = self._cooldowns.wait(account.id)
            if cooling is None and not account.limits.are_set:
                return Permit(account)

    def leave(self, permit: Permit, tokens: int | None) -> None:
        if not permit.id:
            return
        if self._local.leave(permit):
            return
        self._held[permit.account.id].discard(permit.id)
        limits, more = permit.account.limits, 0 if tokens is None else tokens - permit.tokens
        if limits.concurrency is None and (limits.tokens_per_minute is None or not more):
            return
        task = asyncio.create_task(self._leave(permit, more))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def refuse(self, permit: Permit, asked: timedelta | None) -> timedelta:
        account, asked_ms = permit.account, -1
        if asked is not None:
            asked_ms = min(int(asked.total_seconds() * 1000), LONGEST_COOLDOWN_MS)
        names = [keys.limits(account.id), keys.permits(account.id), keys.COOLDOWNS]
        metrics.PROVIDER_REFUSED.labels(account.provider).inc()
        try:
            args = [permit.id, asked_ms, account.limits.concurrency or 0, account.id]
            wait_ms, base_ms = await self._server.call(REFUSE, names, args)
        except Unavailable:  # the others will hear it from the provider
            wait_ms = base_ms = max(asked_ms, 1000)
        self._cooldowns.begin(account.id, wait_ms / 1000, base_ms / 1000)
        log.get().warning("provider cools down", provider=account.provider, model=account.model, wait_ms=wait_ms)
        return timedelta(seconds=self._cooldowns.wait(account.id) or 0.0)

    def used_up(self, account: ProviderAccount) -> None:
        now = time.monotonic()
        if now >= self._told.get(account.id, 0.0):
            self._told[account.id] = now + TELL_AGAIN_SECONDS
            log.get().error("the quota at the provider is used up", provider=account.provider, model=account.model)

    async def _asked(self, permit: Permit) -> AdmissionVerdict:
        """What is in the way of a request. Where nothing is, it has its permit, and may have to wait for a moment."""
        account, limits = permit.account, permit.account.limits
        args = [permit.id, self._lease_ms, limits.concurrency or 0, limits.requests_per_minute or 0]
        args += [limits.tokens_per_minute or 0, permit.tokens, int(PATIENCE.total_seconds() * 1000)]
        try:
            found, wait_ms, base_ms = await self._server.call(
                ADMIT, [keys.limits(account.id), keys.permits(account.id)], args
            )
        except Unavailable:
            return self._local.ask(permit)
        except asyncio.CancelledError:  # it may have got a permit that nobody heard of
            self.leave(permit, 0)
            raise
        obstacle = Obstacle(found) if found else None
        if obstacle is Obstacle.COOLING:
            self._cooldowns.begin(account.id, wait_ms / 1000, base_ms / 1000)
            return AdmissionVerdict(obstacle, self._cooldowns.wait(account.id) or 0.0)
        if obstacle is None and limits.concurrency is not None:
            self._held[account.id].add(permit.id)
        return AdmissionVerdict(obstacle, wait_ms / 1000)

    async def _when_it_is_time(self, permit: Permit, wait: float) -> Permit:
        reach("limits.after_admission")
        if wait <= 0:
            return permit
        try:
            await asyncio.sleep(wait)
            if (cooling := self._cooldowns.wait(permit.account.id)) is not None:  # it began meanwhile
                raise _told_to_wait(permit.account, AdmissionVerdict(Obstacle.COOLING, cooling))
        except (asyncio.CancelledError, RateLimited):
            self.leave(permit, 0)
            raise
        return permit

    async def _leave(self, permit: Permit, more_tokens: int) -> None:
        names = [keys.limits(permit.account.id), keys.permits(permit.account.id)]
        try:
            await self._server.call(LEAVE, names, [permit.id, more_tokens])
        except Exception as error:  # the permit runs out by itself
            survived("limits", "a permit was not given back", error)

    async def _renew(self) -> None:
        """Keep the permits of open requests, however long their answers take."""
        while True:
            await asyncio.sleep(self._renew_seconds)
            for account, permits in list(self._held.items()):
                if not permits:
                    del self._held[account]
                    continue
                try:
                    await self._server.call(RENEW, [keys.permits(account)], [self._lease_ms, *permits])
                except Exception as error:
                    survived("limits", "permits not renewed", error)


def _told_to_wait(account: ProviderAccount, verdict: AdmissionVerdict) -> RateLimited:
    metrics.PROVIDER_WAITS.labels(verdict.obstacle.name.lower() if verdict.obstacle else "").inc()
    if verdict.obstacle is Obstacle.COOLING:
        return RateLimited(timedelta(seconds=verdict.wait), provider=account.provider)
    seconds = verdict.wait * random.uniform(1, 1 + RATE_SPREAD)
    if verdict.obstacle is Obstacle.FULL:
        seconds = random.uniform(*FULL_WAIT)
    return HeldBack(timedelta(seconds=seconds), provider=account.provider)
