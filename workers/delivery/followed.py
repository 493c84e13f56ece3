"""Replies for readers that follow their session: the outbox row is the reply, and this wakes those who wait for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared import keys
from shared.errors import Unavailable
from shared.messages import Part, Receipt
from shared.pipeline import Pipeline
from shared.platforms.facts import Idempotency
from shared.redis_servers import Servers


class FollowedSender:
    """Nothing leaves us, so nothing can arrive twice."""

    idempotency = Idempotency.NATIVE

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def send(self, part: Part) -> Receipt:
        """Never fails: a reader that is not woken finds the row when it next looks."""
        for server in self._servers.may_have(part.session_key):
            with contextlib.suppress(Unavailable):
                await server.asked(server.client.publish(keys.events(part.session_key), part.id))
        return Receipt()


@asynccontextmanager
async def open_followed(pipe: Pipeline) -> AsyncIterator[FollowedSender]:
    yield FollowedSender(pipe.servers)
