"""Emptying a Redis server of what is Keyturn's: all of `kt:*` and, of RQ's names, our queues with their registries and jobs.

Names of others, and what RQ keeps for other programs' queues, stay. It may be repeated, and after a crash in its midst it has to be.
It needs a right that no process of the deployment has: listing names (role `restorer` of `keyturn deploy acl`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import redis

from shared import keys
from shared.errors import CannotDo, Unavailable
from shared.lane.rq_names import JOB_PREFIX, OF_QUEUES, QUEUE_PREFIX, QUEUES, JobField, executions_key, results_key
from shared.lane_key import CONTROL, DELIVERIES, TURNS
from shared.redis_servers import CALL_TIMEOUT_SECONDS, RedisServer

OURS = "kt:*"
PAGE = 1000
_QUEUE = rf"(?:{'|'.join((TURNS, DELIVERIES, CONTROL))})-\d+"
_OF_QUEUE = re.compile(OF_QUEUES, re.S)
_OUR_QUEUE = re.compile(_QUEUE)


async def check_rights(server: RedisServer) -> None:
    """CannotDo where the user may not empty the server, Unavailable where it does not answer. Changes nothing."""
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            await server.client.scan(0, match=OURS, count=1)
            await server.client.unlink(keys.RESTORE)
    except redis.exceptions.NoPermissionError:
        text = "the Redis user of this command may not list names: use the role `restorer`, which `keyturn deploy acl` writes"
        raise CannotDo(text) from None
    except (redis.RedisError, OSError, TimeoutError) as error:
        text = f"Redis {server.name} does not answer ({type(error).__name__}): what it holds must go before the restore"
        raise Unavailable(text) from None


async def empty(server: RedisServer) -> int:
    """Remove what is ours. Gives how many names there were."""
    removed, cursor = 0, 0
    while True:
        found: tuple[int, list[bytes]] = await server.asked(server.client.scan(cursor, count=PAGE))
        cursor, names = int(found[0]), [name.decode(errors="surrogateescape") for name in found[1]]
        ours = [name for name in names if _is_ours(name)]
        ours += await _of_our_jobs(server, [name for name in names if name.startswith(JOB_PREFIX)])
        if ours:
            removed += int(await server.asked(server.client.unlink(*(_bytes(name) for name in ours))))
        if not cursor:
            break
    queues: set[bytes] = await server.asked(server.client.smembers(QUEUES))
    if gone := [
        name for name in queues if _OUR_QUEUE.fullmatch(name.decode(errors="replace").removeprefix(QUEUE_PREFIX))
    ]:
        await server.asked(server.client.srem(QUEUES, *gone))
    return removed


def _is_ours(name: str) -> bool:
    of_queue = _OF_QUEUE.fullmatch(name)
    return name.startswith("kt:") or (of_queue is not None and _OUR_QUEUE.fullmatch(of_queue["queue"]) is not None)


async def _of_our_jobs(server: RedisServer, names: Sequence[str]) -> list[str]:
    """Those of these jobs that are in a queue of ours, with what RQ keeps beside each."""
    if not names:
        return []
    pipeline: Any = server.client.pipeline(transaction=False)
    for name in names:
        pipeline.hget(_bytes(name), JobField.ORIGIN)
    # A name that holds something else is nobody's job.
    origins: list[Any] = await server.asked(pipeline.execute(raise_on_error=False))
    found = []
    for name, origin in zip(names, origins, strict=True):
        if isinstance(origin, bytes) and _OUR_QUEUE.fullmatch(origin.decode(errors="replace")):
            job = name.removeprefix(JOB_PREFIX)
            found += [name, results_key(job), executions_key(job)]
    return found


def _bytes(name: str) -> bytes:
    return name.encode(errors="surrogateescape")
