"""Keys that a pause holds on a Redis server that is drained: they are moved, so that a forgotten pause keeps no server.

All other keys leave by themselves: what waits is served, and a key whose delay or lease has ended is moved by workers/upkeep/due.py.
"""

from __future__ import annotations

from shared.failpoints import reach
from shared.lane import Lane
from shared.lane.elsewhere import move
from shared.lane.pausing import ParkedEntry, parked_entries, unpark
from shared.pipeline import Pipeline
from shared.redis_servers import RedisServer
from workers.upkeep.housekeeping_duty import AT_ONCE


class LeavingKeys:
    """Moves them from one server. At their new place the same pause holds them."""

    def __init__(self, pipe: Pipeline, server: RedisServer) -> None:
        self.every_seconds = pipe.settings.sweep_seconds
        self._pipe = pipe
        self._server = server

    async def look(self) -> float:
        """Move all of them, if the server is drained. A key that is moved twice is there once."""
        if self._server in self._pipe.servers.draining:
            for lane in self._pipe.lanes:
                while parked := await parked_entries(lane, self._server, AT_ONCE):
                    for entry in parked:
                        await self._move(lane, entry)
        return self.every_seconds

    async def _move(self, lane: Lane, entry: ParkedEntry) -> None:
        if entry.key is not None:
            await move(lane, self._server, entry.key)
        reach("move.before_unpark")
        # Wakes the key if it was parked here again meanwhile, by a process that does not know yet that the server is drained.
        await unpark(lane, self._server, entry)
