"""Wakes that a worker popped and never started: they are put back into their queues."""

from __future__ import annotations

import time

from shared import log, metrics
from shared.failpoints import reach
from shared.lane import Lane
from shared.lane.rq_names import popped_key
from shared.pipeline import Pipeline
from shared.redis_servers import RedisServer
from workers.upkeep.rq_leftovers import served_queues

STUCK_SECONDS = 1.0  # a popped wake starts within milliseconds; after this its worker is gone, or too slow


class StuckWakes:
    """Puts the stuck wakes of one server back. A worker that was only slow finds its wake gone and leaves it."""

    def __init__(self, pipe: Pipeline, server: RedisServer) -> None:
        self.every_seconds = pipe.settings.sweep_seconds
        self._server = server
        self._popped: dict[tuple[str, bytes], float] = {}  # (queue, job id) -> first seen in its intermediate list
        self._pipe = pipe

    async def look(self) -> float:
        """Once around all queues."""
        for queue, lane in served_queues(self._pipe, self._server).items():
            await self._put_back(lane, queue)
        return self.every_seconds

    async def _put_back(self, lane: Lane, queue: str) -> None:
        now = time.monotonic()
        ids = await self._server.asked(self._server.client.lrange(popped_key(queue), 0, -1))  # anybody's bytes
        for gone in [seen for seen in self._popped if seen[0] == queue and seen[1] not in ids]:
            del self._popped[gone]
        stuck = [id for id in ids if now - self._popped.setdefault((queue, id), now) > STUCK_SECONDS]
        if stuck:
            reach("housekeep.before_requeue")
            back = await lane.requeue(self._server, queue, stuck)
            metrics.RECOVERED.labels(lane.name, "never_started").inc(back)
            log.get().warning("wakes put back", queue=queue, count=back)
