"""Taking a key from its holder or out of its delay: what an operator's release does in Redis."""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from pathlib import Path

from shared import keys
from shared.errors import Unavailable
from shared.lane.lane import Lane
from shared.redis_servers import Script

FREE = Script.load(Path(__file__).parent / "free.lua")


class Freed(Enum):
    """What the key was before. IDLE: it still is; anything else is awake now."""

    IDLE = 0
    AWAKE = 1
    DELAYED = 2
    LEASED = 3


async def free(lane: Lane, key: str) -> Freed:
    """Take the key from its holder and wake it. Safe at any time: a holder that goes on is refused by its commit."""
    wake = lane.fresh_wake(key)
    names = [keys.state(lane.name, key), keys.due(lane.name), *wake.keys]
    args = [key, lane.recheck_wake_after_ms, *wake.args]
    for server in lane.servers.leaving(key):
        with suppress(Unavailable):
            if (freed := Freed(await server.call(FREE, names, args))) is not Freed.IDLE:
                return freed
    return Freed(await lane.servers.of_key(key).call(FREE, names, args))
