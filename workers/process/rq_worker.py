"""An RQ worker that runs hundreds of wakes at once in one process: what RQ and its readers see of it.

RQ's own keyspace is kept: workers, queues, jobs, registries, results, heartbeats, `rq suspend`, and the commands of
workers/process/rq_commands.py. Popping is in workers/process/fetcher.py, running a wake in workers/process/wakes.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import redis
from rq.timeouts import BaseDeathPenalty
from rq.worker import BaseWorker, WorkerStatus

from shared import keys, log
from shared.background import end_tasks, survived
from shared.lane.rq_names import EXECUTION_HEARTBEAT, SUSPENDED, WorkerField, time_text, workers_of_queue
from shared.lane.wake import RegisteredWorker
from shared.redis_servers import CALL_TIMEOUT_SECONDS, RedisServer
from workers.process.duty import Duty
from workers.process.job_beats import JobBeats
from workers.process.parts import ProcessParts
from workers.process.room import Room
from workers.process.rq_commands import hear_commands
from workers.process.serving import Serving
from workers.process.wakes import HeldWake, Wakes

HEARTBEAT_SECONDS = 1.0
RETRY_SECONDS = 0.5  # between tries while Redis is away


class NoDeathPenalty(BaseDeathPenalty):
    """RQ's signal-based time limit has no place in an event loop; turns have deadlines of their own."""

    def setup_death_penalty(self) -> None: ...

    def cancel_death_penalty(self) -> None: ...


class KeyturnWorker(BaseWorker):
    """Serves its queues on one Redis. If it is killed, its wakes run again: none is lost, and none is answered twice."""

    death_penalty_class = NoDeathPenalty
    _unlisted = False  # whether it serves queues that it was not registered with

    @property
    def connection_timeout(self) -> int:
        """RQ would wait for an answer for minutes, because its own workers pop over this connection; ours do not."""
        return int(CALL_TIMEOUT_SECONDS)

    def work(self, *_: Any, **__: Any) -> bool:
        """For `rq worker -w workers.process.rq_worker.KeyturnWorker -S shared.codec.Serializer QUEUE …`: settings as usual."""
        from workers.process.run import work_queues

        work_queues(self)
        return True

    async def run(
        self,
        parts: ProcessParts,
        server: RedisServer,
        rooms: Mapping[str, Room],
        stopping: asyncio.Event,
        lanes: Sequence[str] = (),
    ) -> None:
        """Serve this worker's queues until `stopping` is set, then drain. `rooms` has one for each lane. Of `lanes`, also the
        queues are served that come to this server meanwhile, because another one is drained."""
        settings = parts.pipe.settings
        # RQ and its readers must see a worker as alive for as long as its leases are.
        self.worker_ttl = max(10, int(settings.lease_seconds * 3))
        self._job_beats = JobBeats(self.worker_ttl)
        served = {*lanes, *(keys.lane_of_queue(queue.name) for queue in self.queues)}
        self._rooms = {lane: room for lane, room in rooms.items() if lane in served}
        wakes = Wakes(parts, RegisteredWorker(server, self.name, self.key, self.worker_ttl), Duty(stopping))
        await self._register(server, wakes)
        heard = hear_commands(server, self.pubsub_channel_name, wakes)
        serving = Serving(parts, server, rooms, wakes)
        serving.add([queue.name for queue in self.queues])
        background = [asyncio.create_task(self._beat(server, wakes)), asyncio.create_task(heard)]
        following = asyncio.create_task(self._follow(serving, lanes))
        await stopping.wait()
        for room in rooms.values():
            room.dismiss()
        await end_tasks(following)
        await serving.end()
        await wakes.drain(settings.grace_seconds)
        await end_tasks(*background)
        with suppress(redis.RedisError):
            await asyncio.to_thread(self.register_death)

    async def _follow(self, serving: Serving, lanes: Sequence[str]) -> None:
        """Serve the queues, too, that come to this server."""
        while True:
            changed = serving.servers.changed
            if added := serving.add_partitions(lanes):
                options: dict[str, Any] = {"connection": self.connection, "serializer": self.serializer}
                self.queues += [self.queue_class(name, **options) for name in added]
                self._unlisted = True
            await changed.wait()

    async def _register(self, server: RedisServer, wakes: Wakes) -> None:
        """Be known to RQ before anything is taken, however long Redis is away."""
        while not wakes.duty.stopping.is_set():
            try:
                await asyncio.to_thread(self.register_birth)
                break
            except (redis.RedisError, OSError) as error:
                log.get().warning("not registered yet", error=type(error).__name__)
                await asyncio.sleep(RETRY_SECONDS)
        with suppress(redis.RedisError, OSError, TimeoutError):  # a worker that RQ lists has a state from the beginning
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                await self._beat_once(server, wakes)

    async def _beat(self, server: RedisServer, wakes: Wakes) -> None:
        """Keep the worker and its running jobs alive in RQ's registries; see whether somebody suspended the workers."""
        while True:
            try:
                await server.asked(self._beat_once(server, wakes))
            except Exception as error:
                survived("beat", "worker not reported to RQ", error)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _beat_once(self, server: RedisServer, wakes: Wakes) -> None:
        client, duty = server.client, wakes.duty
        seconds, micros = await client.time()  # registries are pruned by this clock; ours may be wrong
        now = seconds + micros / 1_000_000
        registered, suspended = await client.hexists(self.key, WorkerField.BIRTH), await client.exists(SUSPENDED)
        if bool(suspended) != duty.suspended:
            duty.suspended = bool(suspended)
            log.get().info("suspended" if suspended else "resumed")
        if not registered:  # Redis was flushed, or we were stopped for long
            await client.delete(self.key)  # a count may have been added since, and RQ refuses a name that is there
            await asyncio.to_thread(self.register_birth)
        pipeline = client.pipeline(transaction=False)
        if self._unlisted:  # RQ's readers find the queues that were added
            pipeline.hset(self.key, WorkerField.QUEUES, ",".join(self.queue_names()))
            for queue in self.queue_names():
                pipeline.sadd(workers_of_queue(queue), self.key)
            self._unlisted = False
        pipeline.hset(self.key, mapping=self._fields(wakes, now))
        pipeline.expire(self.key, self.worker_ttl + 60)
        await pipeline.execute()
        for portion in self._job_beats.due(wakes.held, time.monotonic()):
            await self._beat_jobs(client, portion, now)

    async def _beat_jobs(self, client: Any, portion: Sequence[HeldWake], now: float) -> None:
        pipeline, expires = client.pipeline(transaction=False), int(now) + self.worker_ttl
        for held in portion:
            wake = held.lease.wake
            pipeline.hset(wake.execution_key, EXECUTION_HEARTBEAT, str(now))
            pipeline.expire(wake.execution_key, self.worker_ttl)
            pipeline.zadd(wake.running_key, {wake.running_entry: expires}, xx=True)
            pipeline.zadd(wake.executions_key, {wake.execution: expires + 60}, xx=True)
            pipeline.expire(wake.executions_key, self.worker_ttl + 60)
        await pipeline.execute()

    def _fields(self, wakes: Wakes, now: float) -> dict[Any, Any]:
        """What readers see of this worker."""
        busy = WorkerStatus.BUSY if wakes.held else WorkerStatus.IDLE
        state = WorkerStatus.SUSPENDED if wakes.duty.suspended else busy
        return {
            WorkerField.LAST_HEARTBEAT: time_text(now),
            WorkerField.STATE: state.value,
            WorkerField.RUNNING: len(wakes.held),
            WorkerField.CAPACITY: wakes.capacity,
            WorkerField.SLOTS: ",".join(f"{lane}:{room.running}/{room.slots}" for lane, room in self._rooms.items()),
        }
