"""Keys that leave a server which is drained. Their new mail goes to their new server at once; what they have at the old one is
finished there first, or moved. So a key's turns still run one at a time and in order, although it is at two places.

The compare-and-set in the commit makes it harmless where that fails: because the old server is away, or a process does not know
yet that it is drained.
"""

from __future__ import annotations

import time

from shared import keys, log
from shared.errors import Unavailable
from shared.lane.lane import Lane
from shared.lane.lease import Lease
from shared.redis_servers import RedisServer

AWAY_SECONDS = (
    5.0  # how long an old server that did not answer is not asked again: it may be drained because it is dead
)


class OldPlaces:
    """Asks the servers that keys leave, for one process."""

    def __init__(self) -> None:
        self._away_until: dict[RedisServer, float] = {}

    async def has_more(self, lease: Lease) -> bool:
        """Whether a server that the key leaves still has something of it, which comes first."""
        for server in lease.lane.servers.leaving(lease.key):
            if server is not lease.server and await self._knows(server, lease.lane, lease.key):
                return True
        return False

    async def _knows(self, server: RedisServer, lane: Lane, key: str) -> bool:
        if time.monotonic() < self._away_until.get(server, 0.0):
            return False
        try:
            return bool(await server.asked(server.client.exists(keys.state(lane.name, key))))
        except Unavailable as error:
            self._away_until[server] = time.monotonic() + AWAY_SECONDS
            log.get().warning("a Redis server that is drained does not answer", server=server.name, error=str(error))
            return False
