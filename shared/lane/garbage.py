"""What others left under our names in Redis. It is found when it breaks a script and taken away; the journal has the mail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import redis

from shared import keys, log
from shared.errors import PipelineError, Unavailable
from shared.redis_servers import RedisServer, code_of

if TYPE_CHECKING:
    from shared.lane.lane import Lane

AT_ONCE = 1000


class Garbled(PipelineError):
    """A key held what we never write. It has been taken away: the key goes on when it is next woken."""


def natural(score: bytes | float) -> int:
    """A mailbox number; Garbled for any other score, because mail is acknowledged by it."""
    value = float(score)
    if not value.is_integer():
        raise Garbled(f"mail numbered {value}")
    return int(value)


def is_garbage(error: redis.ResponseError) -> bool:
    """Whether a script failed because of what a name of ours holds, and not because of the server's own state."""
    return code_of(error) in ("WRONGTYPE", "ERR")


async def purge(lane: Lane, key: str, *also: RedisServer) -> None:
    """Remove what makes a key's scripts fail: names of another type, and mail without a proper number. Looks wherever the key may
    be, and at the servers in `also`."""
    for server in dict.fromkeys((*lane.servers.may_have(key), *also)):
        try:
            await _purge(lane, server, key)
        except Unavailable:
            if server not in lane.servers.draining:
                raise


async def _purge(lane: Lane, server: RedisServer, key: str) -> None:
    client, asked = server.client, server.asked
    mail, state = keys.mail(lane.name, key), keys.state(lane.name, key)
    for name, kind in ((mail, b"zset"), (state, b"hash")):
        if await asked(client.type(name)) not in (kind, b"none"):
            await asked(client.delete(name))
    waiting = await asked(client.zrange(mail, 0, AT_ONCE - 1, withscores=True))
    if strange := [member for member, score in waiting if not float(score).is_integer()]:
        await asked(client.zrem(mail, *strange))
    log.get().error("garbage in Redis removed", lane=lane.name, key=key, mail=len(strange))


async def readable(lane: Lane, server: RedisServer, names: Sequence[bytes]) -> list[str]:
    """The keys among these names; others are no longer due."""
    found = []
    for name in names:
        try:
            found.append(name.decode())
        except UnicodeDecodeError:
            await server.asked(server.client.zrem(keys.due(lane.name), name))
            log.get().error("garbage in Redis removed", lane=lane.name, due=name.decode(errors="replace")[:80])
    return found
