"""Redis servers: drain one, so that it can be taken out of REDIS_URL, and let it have keys again."""

from __future__ import annotations

from shared import log
from shared.draining import look
from shared.errors import CannotDo
from shared.pipeline import Pipeline
from shared.value import value


@value
class DrainedServer:
    """A server that gets no keys from now on. What it holds is finished or moved meanwhile."""

    name: str
    state: str = "draining"


@value
class UndrainedServer:
    """A server that gets its keys back; or, where it is listed no more, that is forgotten."""

    name: str
    is_listed: bool
    state: str = "in use"


async def drain(pipe: Pipeline, name: str, *, by: str) -> DrainedServer:
    """Give a server no more keys; CannotDo where it is drained already, not listed, or the last one that takes keys.

    All processes follow within seconds. After a crash behind the database they follow too.
    """
    listed = [server.name for server in pipe.servers.all]
    if name not in listed:
        raise CannotDo(f"REDIS_URL lists no server called {name}; it lists {', '.join(listed)}")
    if listed.count(name) > 1:
        raise CannotDo(f"REDIS_URL lists several servers called {name}: name their databases as /1, not by an option")
    drained = {row["name"] for row in await pipe.store.draining.now()}
    if name in drained:
        raise CannotDo(f"{name} is drained already: `keyturn redis list` says how far it is")
    if not set(listed) - drained - {name}:
        raise CannotDo(f"{name} is the only server that takes keys: add another to REDIS_URL first")
    await pipe.store.draining.begin(name, by)
    log.get().info("Redis server drained", server=name, by=by)
    await look(pipe.servers, pipe.store.draining)
    return DrainedServer(name)


async def undrain(pipe: Pipeline, name: str) -> UndrainedServer:
    """Let a server have its keys back, or forget one that was taken out; CannotDo where it is not drained."""
    if not await pipe.store.draining.end(name):
        raise CannotDo(f"{name} is not drained: `keyturn redis list` lists the servers")
    log.get().info("Redis server in use again", server=name)
    await look(pipe.servers, pipe.store.draining)
    return UndrainedServer(name, any(server.name == name for server in pipe.servers.all))
