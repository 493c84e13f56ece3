"""Telling a running turn something, from any process: that mail came which is meant for it, or that the busy mode changed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shared import keys
from shared.busy import BusyMode
from shared.errors import Unavailable
from shared.lane.lane import Lane
from shared.lane.rq_names import CHANNEL_PREFIX, JOB_PREFIX
from shared.redis_servers import Script

TELL = Script.load(Path(__file__).parent / "tell.lua")


async def tell_turn(lane: Lane, key: str, mode: BusyMode | None = None) -> bool:
    """Let the turn that a key runs look at its mailbox, and go by this mode from now on. False: the key runs none.

    A worker that does not hear it goes on as before; the mail keeps its place.
    """
    names = [keys.state(lane.name, key), keys.mail(lane.name, key)]
    args = [mode.value if mode is not None else "", JOB_PREFIX, CHANNEL_PREFIX]
    for server in lane.servers.leaving(key):
        with suppress(Unavailable):
            if await server.call(TELL, names, args):
                return True
    return bool(await lane.servers.of_key(key).call(TELL, names, args))
