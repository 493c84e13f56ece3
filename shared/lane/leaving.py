"""Keys that leave a server which is drained. Their new mail goes to their new server at once; what they have at the old one is
finished there first, or moved. So a key's turns still run one at a time and in order, although it is at two places.

The compare-and-set in the commit makes it harmless where that fails: because the old server is away, or a process does not know
yet that it is drained.
"""

from __future__ import annotations

import time
from datetime import timedelta

from shared import keys, log
from shared.errors import Unavailable
from shared.lane.lease import Lease

LOOK_SECONDS = 0.5  # between two looks whether a key has left the server that is drained
LOOKS_PER_SECOND = 200  # of one worker: where very many keys wait for their old places, each is looked at less often


class OldPlaces:
    """Asks the servers that keys leave, for one worker."""

    def __init__(self) -> None:
        self._last_look = 0.0  # monotonic: when the last of the keys that were put off is looked at again

    async def has_more(self, lease: Lease) -> bool:
        """Whether a server that the key leaves still has something of it, which comes first."""
        state = keys.state(lease.lane.name, lease.key)
        for server in lease.lane.servers.leaving(lease.key):
            if server is lease.server:
                continue
            try:
                if await server.asked(server.client.type(state)) == b"hash":  # else nothing is there, or garbage
                    return True
            except Unavailable as error:
                log.get().warning("a drained Redis server does not answer", server=server.name, error=str(error))
        return False

    def put_off(self) -> timedelta:
        """How long to leave a key alone that an old place has more of."""
        now = time.monotonic()
        self._last_look = max(self._last_look + 1 / LOOKS_PER_SECOND, now + LOOK_SECONDS)
        return timedelta(seconds=self._last_look - now)
