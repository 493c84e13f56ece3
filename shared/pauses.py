"""Pauses, brought from the database to Redis. The housekeeper does it too: a crash, or a Redis that lost its data, costs time only."""

from __future__ import annotations

from collections.abc import AsyncIterator

from shared import log
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.lane.pausing import hold, knows_pauses, parked_scopes, unpark_all
from shared.pipeline import Pipeline
from shared.redis_servers import RedisServer
from shared.store.pauses import StoredPauses
from shared.value import value


@value
class EnforcedPauses:
    """How many keys were woken. `away`: a store did not answer for one server or more; another call does the rest."""

    woken: int
    away: Unavailable | None


async def enforce_pauses(pipe: Pipeline) -> EnforcedPauses:
    """Let Redis hold exactly the pauses that the database has, and wake the keys that none holds any more.

    A server that does not answer holds up no other. Unavailable where the database does not answer at all.
    """
    stored, woken, away = await pipe.store.pauses.now(), 0, None
    for server in pipe.servers.all:
        try:
            async for count in _enforce(pipe, server, stored):
                woken += count
        except Unavailable as error:
            away = error
    return EnforcedPauses(woken, away)


async def _enforce(pipe: Pipeline, server: RedisServer, stored: StoredPauses) -> AsyncIterator[int]:
    """The same for one server. Gives how many keys each lane's ended pauses let go."""
    if stored.version == 0 and not await knows_pauses(server):
        return
    reach("pause.before_hold")
    if (held := await _hold(pipe, server, stored)) is None:
        return  # somebody with newer pauses was here
    for lane in pipe.lanes:
        for scope in await parked_scopes(lane, server):
            if scope not in held.scopes:
                yield await unpark_all(lane, server, scope)


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
