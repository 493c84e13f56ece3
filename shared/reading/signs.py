"""Signs that processes leave in Redis: when a housekeeper last looked, whether workers are suspended, and how long the last
synthetic message took."""

from __future__ import annotations

from datetime import datetime

from shared import keys
from shared.clock import moment
from shared.lane.rq_names import SUSPENDED
from shared.redis_servers import RedisServer
from shared.value import value


@value
class LastSynthetic:
    """The last synthetic message that came all the way: when it was delivered, and how long it took."""

    delivered_at: datetime
    seconds: float


@value
class ServerSigns:
    """What one Redis server says. None: nobody has left that sign."""

    suspended: bool  # by `rq suspend`: no worker takes a wake from it
    housekeeper_at: datetime | None
    synthetic: LastSynthetic | None


async def signs_of(server: RedisServer) -> ServerSigns:
    """The signs on one server, in one round trip; Unavailable where it does not answer."""
    pipeline = server.client.pipeline(transaction=False)
    pipeline.exists(SUSPENDED)
    pipeline.get(keys.HOUSEKEEPER)
    pipeline.hmget(keys.SYNTHETIC, ["at", "ms"])
    suspended, looked, (at, ms) = await server.asked(pipeline.execute())
    looked_ms, at_ms, took_ms = (_number(text) for text in (looked, at, ms))
    last = LastSynthetic(moment(at_ms), took_ms / 1000) if at_ms is not None and took_ms is not None else None
    return ServerSigns(bool(suspended), moment(looked_ms) if looked_ms is not None else None, last)


def _number(text: bytes | None) -> int | None:
    """A number that we wrote; None for anything else, which a stranger may have put there."""
    return int(text) if text is not None and text.isdigit() and len(text) < 15 else None
