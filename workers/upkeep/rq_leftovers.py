"""What workers leave in RQ's part of a Redis: entries of registries, and the names of workers that died.

RQ's own workers tidy up after themselves in their maintenance; ours leave it to the housekeeper. After PARTITIONS or the
list of servers was changed, a server also holds queues that nobody serves there any more: their wakes are made anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shared import keys, log, metrics
from shared.lane import Lane
from shared.lane.elsewhere import dissolve
from shared.lane.rq_names import QUEUES, WORKERS, popped_key, queue_key, registry_keys, workers_of_queue
from shared.pipeline import Pipeline
from shared.redis_servers import RedisServer
from workers.upkeep.housekeeping_duty import AT_ONCE


class RqLeftovers:
    """Tidies up RQ's part of one server. Mail and leases stay as they are; a key whose wake is removed gets a new one."""

    def __init__(self, pipe: Pipeline, server: RedisServer) -> None:
        self.every_seconds = pipe.settings.sweep_seconds
        self._pipe = pipe
        self._server = server

    async def look(self) -> float:
        """Once around all queues."""
        served = served_queues(self._pipe, self._server)
        for queue, lane in served.items():
            await lane.abandon(self._server, queue, AT_ONCE)
        unserved = await self._unserved(served)
        for queue, lane in unserved.items():
            await self._end(lane, queue)
        await self._bury_workers([*served, *unserved])
        return self.every_seconds

    async def _unserved(self, served: Mapping[str, Lane]) -> dict[str, Lane]:
        """The queues of our lanes that this server knows and that belong elsewhere, or nowhere."""
        lanes = {lane.name: lane for lane in self._pipe.lanes}
        ours = re.compile(re.escape(queue_key("")) + r"((\w+)-\d+)")
        known: Any = await self._server.asked(self._server.client.smembers(QUEUES))
        named = [ours.fullmatch(name.decode(errors="replace")) for name in known]
        found = {match[1]: lanes[match[2]] for match in named if match is not None and match[2] in lanes}
        return {queue: lane for queue, lane in found.items() if queue not in served}

    async def _end(self, lane: Lane, queue: str) -> None:
        """Empty a queue that is not served here. When nothing is left of it, RQ need not know it any more."""
        if count := await dissolve(lane, self._server, queue, AT_ONCE):
            metrics.RECOVERED.labels(lane.name, "unserved").inc(count)
            log.get().warning("wakes of an unserved queue made anew", queue=queue, count=count)
        await lane.abandon(self._server, queue, AT_ONCE)
        left = [queue_key(queue), popped_key(queue), *registry_keys(queue)]
        if not await self._server.asked(self._server.client.exists(*left)):
            await self._server.asked(self._server.client.srem(QUEUES, queue_key(queue)))

    async def _bury_workers(self, queues: list[str]) -> None:
        """Take the names of dead workers out of RQ's lists: nobody else does, and dashboards would show them for ever."""
        server = self._server
        known: Any = list(await server.asked(server.client.smembers(WORKERS)))
        pipeline = server.client.pipeline(transaction=False)
        for worker in known:
            pipeline.exists(worker)
        for worker, alive in zip(known, await server.asked(pipeline.execute()) if known else (), strict=True):
            if not alive:
                pipeline.srem(WORKERS, worker)
                for queue in queues:
                    pipeline.srem(workers_of_queue(queue), worker)
        await server.asked(pipeline.execute())


def served_queues(pipe: Pipeline, server: RedisServer) -> dict[str, Lane]:
    """The queues that workers serve on a server, each with its lane."""
    partitions = pipe.servers.partitions_of(server)
    return {keys.queue_name(lane.name, partition): lane for lane in pipe.lanes for partition in partitions}
