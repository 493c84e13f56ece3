"""Replies for readers that follow their session: the terminal and the API. The outbox row is the reply; this rings a bell."""

from __future__ import annotations

import contextlib

from shared import keys
from shared.errors import Unavailable
from shared.messages import Part, Receipt
from shared.redis_servers import Servers
from workers.delivery import Idempotency


class FollowedSender:
    idempotency = Idempotency.NATIVE

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def send(self, part: Part) -> Receipt:
        """Never fails: a reader that misses the bell finds the row when it next looks."""
        server = self._servers.of_key(part.session_key)
        with contextlib.suppress(Unavailable):
            await server.asked(server.client.publish(keys.events(part.session_key), part.id))
        return Receipt()
