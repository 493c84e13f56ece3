"""Pauses, brought from the database to Redis. The housekeeper does it too: a crash, or a Redis that lost its data, costs time only."""

from __future__ import annotations

from shared import log
from shared.failpoints import reach
from shared.lane.pausing import hold, knows_pauses, parked_scopes, unpark_all
from shared.pipeline import Pipeline
from shared.redis_servers import RedisServer
from shared.store.pauses import StoredPauses


async def enforce_pauses(pipe: Pipeline) -> int:
    """Let Redis hold exactly the pauses that the database has, and wake the keys that none holds any more. Says how many.

    Unavailable where a store does not answer; what was done until then stays done, and the next call does the rest.
    """
    stored, woken = await pipe.store.pauses.now(), 0
    for server in pipe.servers.all:
        if stored.version == 0 and not await knows_pauses(server):
            continue
        reach("pause.before_hold")
        if (held := await _hold(pipe, server, stored)) is None:
            continue  # somebody with newer pauses was here
        for lane in pipe.lanes:
            for scope in await parked_scopes(lane, server):
                if scope not in held.scopes:
                    woken += await unpark_all(lane, server, scope)
    return woken


async def _hold(pipe: Pipeline, server: RedisServer, stored: StoredPauses) -> StoredPauses | None:
    """Put the pauses in force, and give those that are. None: the server has newer ones, which the database has too.

    Redis learns of a version only when the database has it. So a version that the database does not reach afterwards was lost:
    the database was restored, and what it has now counts.
    """
    if not (newer := await hold(server, stored.version, stored.scopes)):
        return stored
    if (stored := await pipe.store.pauses.now()).version >= newer:
        return None
    log.get().warning("the database was restored: its pauses are in force again", version=stored.version, lost=newer)
    return stored if not await hold(server, stored.version, stored.scopes, outdated=newer) else None
