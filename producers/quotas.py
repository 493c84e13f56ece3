"""Quotas: how much a user, a chat, a platform and a sender may bring at a time.

Redis counts, in one script and one round trip before the message is journaled, and only where a quota is set. A message that
comes again is counted once. While Redis is away each process counts for itself, so a message is never refused for that reason.

kt:quota:minute:<whose>  set of message ids, for a minute from the first one on
kt:quota:flight:<whose>  sorted set of keys by the time of their last message: those that may be waiting or running
kt:quota:told:<whose>    there while a chat that is over a quota was told of it
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis

from shared import keys, log
from shared.control import is_control_message
from shared.errors import Unavailable
from shared.keys import short_name as _whose
from shared.messages import Inbound, Source
from shared.pipeline import Pipeline
from shared.platforms.settings import SenderQuota
from shared.redis_servers import RedisServer, Script
from shared.value import value

COUNT = Script.load(Path(__file__).parent / "quota.lua")
WINDOW = timedelta(minutes=1)
GRACE = timedelta(seconds=10)  # between being counted and being in the mailbox
NO_KEYS = timedelta(days=36_500)  # as a grace: no key is old enough to be looked at
FLIGHT_TTL = timedelta(days=1)  # of the keys of somebody who does not come again
OF_SENDS = frozenset({"platform_messages_per_minute", "sender_messages_per_minute"})  # what counts texts to be said
MOST_LOCAL = 10_000  # names that a process counts for while Redis is away
TRIES = 3


@value
class OverQuota:
    """A quota is used up. `first`: its chat was not told yet."""

    quota: str
    retry_after: timedelta
    first: bool


@value
class _Limit:
    """One quota of a message: the Redis name of its count, and its setting."""

    setting: str
    name: str
    most: int
    in_flight: bool


class Quotas:
    """The quotas of one platform."""

    def __init__(self, pipe: Pipeline, platform: str) -> None:
        self._pipe = pipe
        self._platform = platform
        self._settings = pipe.settings.quota
        block = pipe.settings.platform(platform)
        self._of_senders = block.sender_quotas if block is not None else {}
        self.of_senders = bool(self._of_senders) or self._settings.of_senders  # False: it does not matter who sends
        self.any = bool(self._of_senders) or self._settings.any  # False: nothing is counted
        self._locally = LocalCounts()

    async def check(self, inbound: Inbound, key: str, sender: str) -> OverQuota | None:
        """Count the message, or say which quota is used up; then it is not counted. Safe to repeat. Never raises
        Unavailable."""
        limits = list(self._limits(inbound, sender)) if self.any else []
        told = keys.quota("told", _whose(inbound.source.platform, inbound.source.account, inbound.source.chat))
        return await self._check(inbound.id, key, told, limits)

    async def check_send(self, id: str, sender: str) -> OverQuota | None:
        """The same for a text that a sender wants said somewhere: it counts as one of their messages."""
        limits = [limit for limit in self._limits(_a_send(id, self._platform), sender) if limit.setting in OF_SENDS]
        return await self._check(id, "", keys.quota("told", _whose(self._platform, sender)), limits)

    async def _check(self, message: str, key: str, told: str, limits: Sequence[_Limit]) -> OverQuota | None:
        if not limits:
            return None
        try:
            return await self._count(message, key, told, limits)
        except (Unavailable, redis.ResponseError) as error:
            log.get().warning("quotas are counted by each process for itself", error=str(error))
            return self._locally.check(message, told, [limit for limit in limits if not limit.in_flight])

    async def _count(self, message: str, key: str, told: str, limits: Sequence[_Limit]) -> OverQuota | None:
        server = self._pipe.servers.of_key(keys.quota("of", self._platform))
        names = [told, *(limit.name for limit in limits)]
        most = [-limit.most if limit.in_flight else limit.most for limit in limits]
        grace = GRACE
        for _ in range(TRIES):
            args = [message, key, _ms(WINDOW), _ms(grace), _ms(FLIGHT_TTL), *most]
            place, *over = await server.call(COUNT, names, args)
            if not place:
                return None
            limit, (left_ms, first, *perhaps_ended) = limits[place - 1], over
            if not perhaps_ended:
                return OverQuota(limit.setting, timedelta(milliseconds=left_ms), bool(first))
            if not await self._forget_ended(server, limit, perhaps_ended):
                grace = NO_KEYS
        return OverQuota(limit.setting, WINDOW, first=False)

    async def _forget_ended(self, server: RedisServer, limit: _Limit, perhaps: Sequence[Any]) -> bool:
        """Stop counting keys that are idle by now. Only asked when a quota is used up."""
        named = [key.decode() for key in perhaps]
        ended = [key for key, awake in zip(named, await self._pipe.turns.awake(named), strict=True) if not awake]
        if ended:
            await server.asked(server.client.zrem(limit.name, *ended))
        return bool(ended)

    def _limits(self, inbound: Inbound, sender: str) -> Iterator[_Limit]:
        source, control = inbound.source, is_control_message(inbound)
        platform, user = source.platform, source.user_alt or source.user
        most, own = self._settings, self._of_senders.get(sender, SenderQuota())
        rows = (
            ("user", user and _whose(platform, user), most.user_messages_per_minute, most.user_turns_in_flight),
            (
                "chat",
                _whose(platform, source.account, source.chat),
                most.chat_messages_per_minute,
                most.chat_turns_in_flight,
            ),
            ("platform", platform, most.platform_messages_per_minute, most.platform_turns_in_flight),
            (
                "sender",
                sender and _whose(platform, sender),
                own.messages_per_minute or most.sender_messages_per_minute,
                own.turns_in_flight or most.sender_turns_in_flight,
            ),
        )
        for who, name, per_minute, in_flight in rows:
            if name and per_minute is not None:
                count = keys.quota("minute", f"{who}:{name}")
                yield _Limit(f"{who}_messages_per_minute", count, per_minute, in_flight=False)
            if name and in_flight is not None and not control:
                count = keys.quota("flight", f"{who}:{name}")
                yield _Limit(f"{who}_turns_in_flight", count, in_flight, in_flight=True)


class LocalCounts:
    """The counts of one process while Redis is away: per minute only, and for a bounded number of names."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, set[str]]] = {}  # name -> when its minute ends, ids
        self._told: dict[str, float] = {}

    def check(self, message: str, told: str, limits: Sequence[_Limit]) -> OverQuota | None:
        """As Quotas.check, for what this process has let in."""
        now = time.monotonic()
        counts = [self._window(limit.name, now) for limit in limits]
        for limit, (until, ids) in zip(limits, counts, strict=True):
            if message not in ids and len(ids) >= limit.most:
                first = self._told.get(told, 0.0) <= now
                if first:
                    _keep(self._told, told, until)
                return OverQuota(limit.setting, timedelta(seconds=until - now), first)
        for _, ids in counts:
            ids.add(message)
        return None

    def _window(self, name: str, now: float) -> tuple[float, set[str]]:
        window = self._seen.get(name)
        if window is None or window[0] <= now:
            window = (now + WINDOW.total_seconds(), set())
            _keep(self._seen, name, window)
        return window


def _a_send(id: str, platform: str) -> Inbound:
    return Inbound(id, id, Source(platform, ""), "")


def _keep(kept: dict[str, Any], name: str, value: Any) -> None:
    kept.pop(name, None)
    kept[name] = value
    while len(kept) > MOST_LOCAL:
        del kept[next(iter(kept))]


def _ms(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)
