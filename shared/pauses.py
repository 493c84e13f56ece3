"""Pauses, brought from the database to Redis. The housekeeper does it too: a crash, or a Redis that lost its data, costs time only."""

from __future__ import annotations

from shared.failpoints import reach
from shared.lane.pausing import hold, parked_scopes, unpark_all
from shared.pipeline import Pipeline


async def enforce_pauses(pipe: Pipeline) -> int:
    """Let Redis hold exactly the pauses that the database has, and wake the keys that none holds any more. Says how many.

    Unavailable where a store does not answer; what was done until then stays done, and the next call does the rest.
    """
    stored = await pipe.store.pauses.now()
    if stored.version == 0:
        return 0
    scopes = [row["scope"] for row in stored.rows]
    woken = 0
    for server in pipe.servers.all:
        reach("pause.before_hold")
        if not await hold(server, stored.version, scopes):
            continue  # somebody with newer pauses was here
        for lane in pipe.lanes:
            for scope in await parked_scopes(lane, server):
                if scope not in scopes:
                    woken += await unpark_all(lane, server, scope)
    return woken
