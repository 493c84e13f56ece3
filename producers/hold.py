"""Small values by name, each for a short time and for all processes: Redis keeps them, and forgets them by itself.

What Redis does not take, because it is away, this process keeps for itself and for as long. Nothing here is the only copy of
anything that was accepted.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import redis

from shared import log
from shared.errors import Unavailable
from shared.redis_servers import RedisServer, Script, Servers
from shared.value import value

REPLACE = Script.load(Path(__file__).parent / "hold.lua")
AWAY_SECONDS = 5.0  # how long a Redis that did not answer is not asked again: what comes meanwhile must not wait for it
MOST_LOCAL = 1000  # values that a process keeps while Redis is away


@value
class HeldValue:
    """What is kept under a name: in Redis (None: it does not answer), and by this process. Empty: nothing."""

    shared: bytes | None
    local: bytes


class ShortHold:
    """The values of one process and those that it shares with others. Never raises Unavailable."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._away_until = 0.0
        self._local: dict[str, tuple[bytes, float]] = {}  # name -> value, until when

    async def find(self, name: str) -> HeldValue:
        self._forget_expired()
        local, _ = self._local.get(name, (b"", 0.0))
        shared: bytes | None = None
        if time.monotonic() >= self._away_until:
            server = self._server(name)
            try:
                shared = await server.asked(server.client.get(name)) or b""
            except (Unavailable, redis.ResponseError) as error:
                self._not_there(error)
        return HeldValue(shared, local)

    async def replace(self, name: str, found: HeldValue, value: bytes, ttl: timedelta) -> bool:
        """Keep a value instead of the one that was found; an empty one is none. False: another process was faster, and
        nothing was changed."""
        if found.shared is not None:
            try:
                args = [found.shared, value, int(ttl.total_seconds() * 1000)]
                replaced = await self._server(name).call(REPLACE, [name], args)
            except (Unavailable, redis.ResponseError) as error:
                self._not_there(error)
            else:
                if replaced:
                    self._local.pop(name, None)
                return bool(replaced)
        self._local.pop(name, None)
        if value:
            self._local[name] = (value, time.monotonic() + ttl.total_seconds())
        while len(self._local) > MOST_LOCAL:
            del self._local[next(iter(self._local))]
        return True

    def _server(self, name: str) -> RedisServer:
        return self._servers.of_key(name)

    def _not_there(self, error: Exception) -> None:
        if isinstance(error, Unavailable):  # else something that is not ours stands under this one name
            self._away_until = time.monotonic() + AWAY_SECONDS
        log.get().warning("pieces of messages are kept by each process for itself", error=str(error))

    def _forget_expired(self) -> None:
        now = time.monotonic()
        for name in [name for name, (_, until) in self._local.items() if until <= now]:
            del self._local[name]
