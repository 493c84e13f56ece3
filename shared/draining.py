"""Every process looks every two seconds which Redis servers are drained. A deployment with one server has nothing to look for.

Processes learn of a change one after the other. Meanwhile mail may still be put on a server that is drained already: workers
serve its queues until it is out of the list, and the housekeeper moves what nobody serves there. While the database is away,
the servers that were drained still are; a process that starts then drains none until it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared import log
from shared.background import end_tasks, survived
from shared.errors import Unavailable
from shared.redis_servers import Servers
from shared.store.draining import DrainingServers

LOOK_SECONDS = 2.0
SETTLED_SECONDS = 15.0  # by then every process that runs has looked; one that is stopped looks when it goes on


@asynccontextmanager
async def following_drains(servers: Servers, draining: DrainingServers) -> AsyncIterator[None]:
    """Spread the partitions as the database says, now and whenever that changes."""
    if len(servers.all) == 1:
        yield
        return
    try:
        await look(servers, draining)
    except Exception as error:  # away, or not migrated: whoever needs it says so
        log.get().debug("not known which Redis servers are drained", error=str(error))
    following = asyncio.create_task(_follow(servers, draining))
    try:
        yield
    finally:
        await end_tasks(following)


async def look(servers: Servers, draining: DrainingServers) -> None:
    """Ask the database once, and do as it says."""
    names = {row["name"] for row in await draining.now()}
    if servers.drain(names):
        drained = sorted(server.name for server in servers.draining)
        log.get().info("Redis servers drained", servers=", ".join(drained) or "none")


async def _follow(servers: Servers, draining: DrainingServers) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            await look(servers, draining)
        except Unavailable:  # what needs the database says so
            continue
        except Exception as error:
            survived("draining", "not known which Redis servers are drained", error)
