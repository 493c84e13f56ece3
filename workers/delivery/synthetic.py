"""The end of a synthetic message's way: nothing leaves us, and Redis is told how long it took."""

from __future__ import annotations

import contextlib
from typing import Any

from shared import keys
from shared.clock import now_ms
from shared.errors import Unavailable
from shared.messages import Part, Receipt
from shared.pipeline import Pipeline
from shared.platforms.facts import Idempotency


class SyntheticSender:
    """Takes every part. A time that cannot be noted is lost: the next message brings another."""

    idempotency = Idempotency.NATIVE

    def __init__(self, pipe: Pipeline) -> None:
        self._server = pipe.servers.all[0]

    async def send(self, part: Part) -> Receipt:
        if part.text.isascii() and part.text.isdigit():
            now = now_ms()
            took: dict[Any, Any] = {"at": now, "ms": max(0, now - int(part.text))}
            with contextlib.suppress(Unavailable):
                await self._server.asked(self._server.client.hset(keys.SYNTHETIC, mapping=took))
        return Receipt()
