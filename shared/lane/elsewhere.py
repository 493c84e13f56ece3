"""What lies where nobody looks for it any more, after the list of Redis servers or the number of partitions was changed.

Keys are moved to the server that they belong to, with their mail. Wakes in queues that no worker serves are made anew.
Both may be cut short anywhere and repeated: mail leaves the old server when the new one has it.
"""

from __future__ import annotations

from pathlib import Path

import redis

from shared import keys, log
from shared.failpoints import reach
from shared.lane.garbage import Garbled, is_garbage, natural, purge
from shared.lane.lane import Lane
from shared.lane.lease import FIRST_MAILBOX_SEQ
from shared.lane.rq_names import JOB_PREFIX, popped_key, queue_key
from shared.redis_servers import RedisServer, Script

_HERE = Path(__file__).parent
LEAVE, DISSOLVE = (Script.load(_HERE / f"{name}.lua") for name in ("leave", "dissolve"))
MAIL_AT_ONCE = 100


async def move(lane: Lane, server: RedisServer, key: str) -> bool:
    """Move a key and its mail from `server` to the one that it belongs to. False: a worker still holds it there.

    Mail that its mailbox numbered gets a new number, because later mail may have been answered at the new place already. A key
    that holds garbage is cleaned first.
    """
    try:
        return await _move(lane, server, key)
    except redis.ResponseError as error:
        if not is_garbage(error):
            raise
        await purge(lane, key, server)
        return await _move(lane, server, key)


async def _move(lane: Lane, server: RedisServer, key: str) -> bool:
    names = [keys.mail(lane.name, key), keys.state(lane.name, key), keys.due(lane.name)]
    arrived: list[bytes] = []
    while True:
        free, *flat = await server.call(LEAVE, names, [key, MAIL_AT_ONCE, *arrived])
        if not free:
            return False
        if not flat:
            log.get().info("key moved to the server that it belongs to", lane=lane.name, key=key)
            return True
        arrived = flat[1::2]
        for score, payload in zip(flat[::2], arrived, strict=True):
            try:
                seq = natural(score)
            except Garbled:
                log.get().error("garbage in Redis removed", lane=lane.name, key=key, mail=1)
            else:
                reach("move.before_put")
                await lane.put(key, seq if seq < FIRST_MAILBOX_SEQ else 0, payload)
                reach("move.after_put")


async def dissolve(lane: Lane, server: RedisServer, queue: str, at_most: int) -> int:
    """Empty a queue that is served no more. The keys of its wakes are woken where they belong, and moved there first."""
    found = await server.call(DISSOLVE, [queue_key(queue), popped_key(queue)], [JOB_PREFIX, at_most])
    for name in found:
        key = name.decode(errors="replace")
        reach("move.before_recover")
        if lane.servers.of_key(key) is server:
            await lane.recover(key)
        else:  # if it is cut short here, the key is moved when it is due
            await move(lane, server, key)
    return len(found)
