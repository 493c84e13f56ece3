"""The append-only file of the Valkey that `keyturn up` runs: deleted values stay in it until it is written anew."""

from __future__ import annotations

import asyncio
from typing import Any

import redis

from shared.embedded import running
from shared.errors import Unavailable
from shared.pipeline import Pipeline
from shared.redis_servers import RedisServer

SECONDS = 60.0
LOOK_SECONDS = 0.05


async def write_anew(pipe: Pipeline) -> None:
    """Let the file hold nothing but what Redis holds now; Unavailable where it cannot be written. Leaves other servers alone."""
    up = running.find(pipe.settings.data_dir)
    for server in pipe.servers.all:
        if up is not None and server.url == up.redis_url and (await _persistence(server)).get("aof_enabled"):
            try:
                async with asyncio.timeout(SECONDS):
                    await _written_anew(server)
            except redis.exceptions.NoPermissionError:  # an `up` with a Redis of the operator's own
                return
            except (redis.RedisError, OSError, TimeoutError) as error:
                raise Unavailable(f"Redis does not write its append-only file anew: {type(error).__name__}") from None


async def _written_anew(server: RedisServer) -> None:
    await _at_rest(server)  # what runs already may have begun with values that are deleted by now
    await server.client.bgrewriteaof()
    if (await _at_rest(server)).get("aof_last_bgrewrite_status") != "ok":
        raise Unavailable("Redis cannot write its append-only file anew: see its log")


async def _at_rest(server: RedisServer) -> dict[str, Any]:
    while (found := await _persistence(server)).get("aof_rewrite_in_progress") or found.get("aof_rewrite_scheduled"):
        await asyncio.sleep(LOOK_SECONDS)
    return found


async def _persistence(server: RedisServer) -> dict[str, Any]:
    found: dict[str, Any] = await server.asked(server.client.info("persistence"))
    return found
