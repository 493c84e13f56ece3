"""Signs that processes leave in Redis: when a housekeeper last looked, whether workers are suspended, and how long the last
synthetic message took."""

from __future__ import annotations

from datetime import datetime, timedelta

from shared import keys
from shared.clock import moment
from shared.lane.rq_names import SUSPENDED
from shared.redis_servers import RedisServer
from shared.value import value

HOUSEKEEPER_LATE = timedelta(seconds=20)  # a housekeeper leaves a sign every five


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


def sign_age(ttl_ms: int) -> timedelta | None:
    """How long ago a housekeeper left its sign of life, by what PTTL says of it. None: no sign is there."""
    return timedelta(milliseconds=max(0, keys.HOUSEKEEPER_TTL_S * 1000 - ttl_ms)) if ttl_ms >= 0 else None


def no_housekeeper(age: timedelta | None) -> str | None:
    """That no housekeeper runs, in words, by the age of its sign; None while one does."""
    if age is None:
        return "No housekeeper has run here"
    return f"No housekeeper has run for {age.total_seconds():.0f} s" if age > HOUSEKEEPER_LATE else None


def _number(text: bytes | None) -> int | None:
    """A number that we wrote; None for anything else, which a stranger may have put there."""
    return int(text) if text is not None and text.isdigit() and len(text) < 15 else None
