"""The end of a synthetic message's way: nothing leaves us, and Redis is told how long it took.

Every server is told, and readers take the newest: a server that is away hides nothing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from shared import keys
from shared.clock import now_ms
from shared.errors import Unavailable
from shared.messages import Part, Receipt
from shared.pipeline import Pipeline
from shared.platforms.facts import Idempotency
from shared.redis_servers import RedisServer


class SyntheticSender:
    """Takes every part. A time that cannot be noted is lost: the next message brings another."""

    idempotency = Idempotency.NATIVE

    def __init__(self, pipe: Pipeline) -> None:
        self._servers = pipe.servers.all

    async def send(self, part: Part) -> Receipt:
        if part.text.isascii() and part.text.isdigit():
            now = now_ms()
            took: dict[Any, Any] = {"at": now, "ms": max(0, now - int(part.text))}
            await asyncio.gather(*(_note(server, took) for server in self._servers))
        return Receipt()


async def _note(server: RedisServer, took: dict[Any, Any]) -> None:
    with contextlib.suppress(Unavailable):
        await server.asked(server.client.hset(keys.SYNTHETIC, mapping=took))
