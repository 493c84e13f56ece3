"""The queues that one worker serves on one Redis. More may come while it runs, because another server is drained; none goes:
those that leave this server are served until it is out of the list."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from shared import keys
from shared.lane_key import DELIVERIES
from shared.redis_servers import RedisServer
from workers.process.fetcher import Fetcher, end_fetching
from workers.process.parts import ProcessParts
from workers.process.room import Room
from workers.process.wakes import ServedQueue, Wakes


class Serving:
    """The queues and their fetchers. Replies that this process writes are delivered by the worker at their chat's own server."""

    def __init__(self, parts: ProcessParts, server: RedisServer, rooms: Mapping[str, Room], wakes: Wakes) -> None:
        self.servers = parts.pipe.servers
        self._parts = parts
        self._server = server
        self._rooms = rooms
        self._wakes = wakes
        self._queues: dict[str, ServedQueue] = {}
        self._fetchers: list[Fetcher] = []
        self._fetching: list[asyncio.Task[None]] = []

    def add(self, names: Sequence[str]) -> None:
        """Serve these queues from now on."""
        for name in names:
            lane = keys.lane_of_queue(name)
            queue = self._queues[name] = ServedQueue(name, self._parts.pipe.lane(lane), self._rooms[lane])
            fetcher = Fetcher(self._server, queue, self._wakes)
            self._fetchers.append(fetcher)
            self._fetching.append(asyncio.create_task(fetcher.run()))
        self._deliver_here()

    def add_partitions(self, lanes: Sequence[str]) -> list[str]:
        """Serve all queues of these lanes that this server has by now, and give those that are new."""
        partitions = self.servers.partitions_of(self._server)
        names = [keys.queue_name(lane, partition) for lane in lanes for partition in partitions]
        added = [name for name in names if name not in self._queues]
        self.add(added)
        return added

    async def end(self) -> None:
        """Take no more wakes."""
        await end_fetching(self._fetchers, self._fetching)

    def _deliver_here(self) -> None:
        for name, queue in self._queues.items():
            is_home = self.servers.of_partition(keys.partition_of_queue(name)) is self._server
            if queue.lane.name == DELIVERIES and is_home:
                self._parts.publisher.deliver_here(name, partial(self._wakes.start_here, queue))
