"""An RQ worker that runs hundreds of wakes at once in one process. The one file that knows how an RQ worker works inside.

RQ's own keyspace is kept: workers, queues, jobs, registries, results, heartbeats, suspend, and the commands stop-job and
shutdown. Popping is BLMOVE to RQ's intermediate list, so a wake that dies with its worker before it started is found there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import cycle
from typing import Any

import redis
from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection
from rq.timeouts import BaseDeathPenalty
from rq.worker import BaseWorker, WorkerStatus

from shared import log, metrics
from shared.background import end_tasks, survived
from shared.errors import PipelineError, Unavailable
from shared.failpoints import reach
from shared.lane import Lane, Lease
from shared.lane.rq_names import (
    EXECUTION_HEARTBEAT,
    FAILURE_TTL_SECONDS,
    RESULTS_KEPT,
    STATUS_FAILED,
    SUSPENDED,
    JobField,
    WorkerField,
    failed_key,
    failed_result,
    popped_key,
    queue_key,
    result_times,
    time_text,
)
from shared.lane.wake import RegisteredWorker, StartedWake, called
from shared.lane_key import DELIVERIES
from shared.pipeline import JOBS
from shared.redis_servers import CALL_TIMEOUT_SECONDS, Server
from workers.jobs import ALLOWED
from workers.process.parts import Crew
from workers.process.room import Place, Room

POP_SECONDS = 2  # a blocking pop ends by itself or by the server's word, never by cancelling: that could strand a wake
CLAIM_LIMIT = 1  # mail per claim: each message is a turn of its own
PUT_OFF = timedelta(seconds=1)  # for a key whose database does not answer
RETRY_SECONDS = 0.5  # between tries while Redis is away


class NoDeathPenalty(BaseDeathPenalty):
    """RQ's signal-based time limit has no place in an event loop; turns have deadlines of their own."""

    def setup_death_penalty(self) -> None: ...

    def cancel_death_penalty(self) -> None: ...


class KeyturnWorker(BaseWorker):
    death_penalty_class = NoDeathPenalty

    @property
    def connection_timeout(self) -> int:
        """RQ would wait for an answer for minutes, because its own workers pop over this connection; ours do not."""
        return int(CALL_TIMEOUT_SECONDS)

    def work(self, *_: Any, **__: Any) -> bool:
        """For `rq worker -w workers.process.rq_worker.KeyturnWorker -S shared.codec.Serializer QUEUE …`: settings as usual."""
        from workers.process.run import work_queues

        work_queues(self)
        return True

    async def run(self, crew: Crew, server: Server, rooms: Mapping[str, Room], stopping: asyncio.Event) -> None:
        """Serve this worker's queues on one Redis until `stopping` is set, then drain. `rooms` has one for each lane."""
        self._crew, self._server, self._rooms, self._stopping = crew, server, rooms, stopping
        self._settings = crew.pipe.settings
        self._running: dict[str, tuple[asyncio.Task[None], StartedWake, Lease | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # also those that have not started their wake yet
        self._suspended = False
        self._popping: dict[AbstractConnection, int] = {}  # the fetchers' connections, as the server numbers them
        # RQ and its readers must see a worker as alive for as long as its leases are.
        self.worker_ttl = max(10, int(self._settings.lease_seconds * 3))
        self._registered = RegisteredWorker(server, self.name, self.key, self.worker_ttl)
        await self._register()
        background = [asyncio.create_task(self._beat()), asyncio.create_task(self._obey())]
        fetchers = [asyncio.create_task(self._fetch(queue.name)) for queue in self.queues]
        for queue in self.queues:
            if _lane_name(queue.name) == DELIVERIES:
                crew.publisher.deliver_here(queue.name, partial(self._take, queue.name))
        await stopping.wait()
        for room in rooms.values():
            room.dismiss()
        await self._end_pops(fetchers)
        await self._drain()
        await end_tasks(*background)
        with suppress(redis.RedisError):
            await asyncio.to_thread(self.register_death)

    # -- popping

    async def _fetch(self, queue: str) -> None:
        """One blocking connection per partition, which takes the oldest wake and the newest in turn.

        So while a backlog drains, a conversation that begins now is answered now, and the backlog still gets half.
        """
        room = self._rooms[_lane_name(queue)]
        pops = cycle(
            pack_command(("BLMOVE", queue_key(queue), popped_key(queue), end, "RIGHT", POP_SECONDS))  # type: ignore[arg-type]
            for end in ("LEFT", "RIGHT")
        )
        connection = self._server.connection()
        try:
            while not self._stopping.is_set():
                place = await room.reserve()
                popped = await self._pop(queue, connection, next(pops))
                if popped is None:
                    place.leave()
                elif place.keep():
                    self._spawn(queue, popped, place)
                else:
                    await self._put_back(queue, popped)
        finally:
            await connection.disconnect()

    async def _pop(self, queue: str, connection: AbstractConnection, pop: bytes) -> bytes | None:
        """The id of a wake. None: none came, the server is away, or the workers are suspended. Never raises: a fetcher
        that ends leaves its partition to nobody."""
        try:
            if self._stopping.is_set():
                return None
            if self._suspended:
                await asyncio.sleep(RETRY_SECONDS)
                return None
            async with asyncio.timeout(POP_SECONDS + 5):
                if connection not in self._popping:
                    await connection.connect()  # type: ignore[no-untyped-call]
                    await connection.send_command("CLIENT", "ID")
                    self._popping[connection] = await connection.read_response()
                await connection.send_packed_command(pop, check_health=False)
                popped: bytes | None = await connection.read_response()
                return popped
        except Exception as error:
            log.get().warning("queue not reachable", queue=queue, error=type(error).__name__)
            self._popping.pop(connection, None)
            await connection.disconnect(nowait=True)
            await asyncio.sleep(RETRY_SECONDS)
            return None

    async def _put_back(self, queue: str, popped: bytes) -> None:
        """Leave a wake to whoever has room. If Redis is away, it is found where popped wakes are found."""
        with suppress(PipelineError, redis.RedisError, OSError):
            await self._crew.pipe.lane(_lane_name(queue)).requeue(self._server, queue, [popped])

    async def _end_pops(self, fetchers: Sequence[asyncio.Task[None]]) -> None:
        """Wait for the fetchers to see the end; the server tells those that wait for a wake. If it may not, they time out."""
        while any(not fetcher.done() for fetcher in fetchers):
            with suppress(redis.RedisError, OSError, TimeoutError):
                async with asyncio.timeout(POP_SECONDS):
                    for number in tuple(self._popping.values()):
                        await self._server.client.client_unblock(number)
            await asyncio.wait(fetchers, timeout=0.1)

    def _take(self, queue: str, job_id: str) -> bool:
        """Run a wake that this process is about to queue, as if it had popped it. False: there is no room for it."""
        if self._stopping.is_set() or self._suspended:
            return False
        if (place := self._rooms[_lane_name(queue)].take()) is None:
            return False
        self._spawn(queue, job_id.encode(), place)
        return True

    def _spawn(self, queue: str, popped: bytes, place: Place) -> None:
        task = asyncio.create_task(self._run(queue, popped, place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- running

    async def _run(self, queue: str, popped: bytes, place: Place) -> None:
        """Start a popped wake, claim its key and run its job. Nothing that goes wrong here ends the worker."""
        lane = self._crew.pipe.lane(_lane_name(queue))
        job_id = popped.decode(errors="replace")
        lease: Lease | None = None
        try:
            if job_id.encode() != popped:
                metrics.FORGED_JOB.inc()
                log.get().error("forged job refused", job=job_id[:40], queue=queue, reason="its id is not text")
                dropped = self._server.client.lrem(popped_key(queue), 1, popped)  # type: ignore[arg-type]
                await self._server.asked(dropped)
                return
            if self._stopping.is_set() or self._suspended:  # popped just after the worker was told so: not for us
                await lane.requeue(self._server, queue, [job_id])
                return
            reach("start.before_claim")
            started = await lane.start(self._registered, queue, job_id, limit=CLAIM_LIMIT)
            lease = started.lease
            reach("start.after_claim")
            if started.wake is None:
                return
            if (refusal := _refusal(started.data, lane, lease)) is not None:
                metrics.FORGED_JOB.inc()
                log.get().error("forged job refused", job=job_id, queue=queue, reason=refusal)
                await self._fail(started.wake, f"refused: {refusal}")
                if lease is not None:
                    await lease.release(spent=False)
                return
            if lease is None:
                await lane.finish(started.wake)
                return
            lease.on_agent_start = place.begin
            await self._hold(lease, lane)
        except Unavailable as error:
            log.get().warning("wake put off", job=job_id, queue=queue, error=str(error))
            if lease is not None and not lease.ended:
                with suppress(PipelineError):  # if Redis is away too, the lease runs out
                    await lease.release(delay=PUT_OFF, spent=False)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.get().exception("wake failed", job=job_id, queue=queue)
            with suppress(PipelineError, redis.RedisError, OSError):
                if lease is not None:
                    await self._fail(lease.wake, f"{type(error).__name__}: {error}")
                    if not lease.ended:
                        await lease.release(delay=self._crew.pipe.settings.lease, spent=True)
        finally:
            place.leave()
            if lease is not None:  # given back or not, it is renewed no longer: at the latest it runs out
                lane.renewal.let_go(lease)

    async def _hold(self, lease: Lease, lane: Lane) -> None:
        task = asyncio.current_task()
        assert task is not None
        lease.on_lost = task.cancel
        self._running[lease.wake.id] = (task, lease.wake, lease)
        try:
            await ALLOWED[JOBS[lane.name]](lease, self._crew)
        except asyncio.CancelledError:
            if not lease.lost and not lease.killed_by_operator and not self._stopping.is_set():
                raise
            if not lease.ended:
                with suppress(PipelineError):
                    await asyncio.shield(lease.release(spent=False))
        finally:
            del self._running[lease.wake.id]
            lane.renewal.let_go(lease)
        if lease.lost:  # the key is another's; the job is still ours to end
            await lane.finish(lease.wake)

    async def _fail(self, running: StartedWake, reason: str) -> None:
        """What RQ leaves of a failed job, without calling anything that the job names."""
        ended = datetime.now(UTC)
        pipeline = self._server.client.pipeline(transaction=True)
        pipeline.hset(running.job_key, mapping={JobField.STATUS: STATUS_FAILED, JobField.ENDED_AT: time_text(ended)})
        pipeline.expire(running.job_key, FAILURE_TTL_SECONDS)
        record = failed_result(self.name, running.execution, reason) | result_times(running.started, ended)
        pipeline.xadd(running.results_key, record, maxlen=RESULTS_KEPT, approximate=False)
        pipeline.expire(running.results_key, FAILURE_TTL_SECONDS)
        pipeline.zadd(failed_key(running.queue), {running.id: int(ended.timestamp()) + FAILURE_TTL_SECONDS})
        pipeline.delete(running.execution_key)
        pipeline.zrem(running.running_key, running.running_entry)
        pipeline.zrem(running.executions_key, running.execution)
        pipeline.hincrby(running.by.key, WorkerField.FAILED_COUNT, 1)
        pipeline.hincrbyfloat(running.by.key, WorkerField.WORKING_TIME, (ended - running.started).total_seconds())
        await self._server.asked(pipeline.execute())

    # -- being a worker in RQ's eyes

    async def _register(self) -> None:
        while not self._stopping.is_set():
            try:
                await asyncio.to_thread(self.register_birth)
                break
            except (redis.RedisError, OSError) as error:
                log.get().warning("not registered yet", error=type(error).__name__)
                await asyncio.sleep(RETRY_SECONDS)
        with suppress(redis.RedisError, OSError, TimeoutError):  # a worker that RQ lists has a state from the beginning
            async with asyncio.timeout(5):
                await self._beat_once()

    async def _beat(self) -> None:
        """Keep the worker and its running jobs alive in RQ's registries; see whether somebody suspended the workers."""
        while True:
            try:
                await self._server.asked(self._beat_once())
            except Exception as error:
                survived("beat", "worker not reported to RQ", error)
            await asyncio.sleep(1)

    async def _beat_once(self) -> None:
        now = datetime.now(UTC)
        client = self._server.client
        registered, suspended = await client.hexists(self.key, WorkerField.BIRTH), await client.exists(SUSPENDED)
        if bool(suspended) != self._suspended:
            self._suspended = bool(suspended)
            log.get().info("suspended" if suspended else "resumed")
        if not registered:  # Redis was flushed, or we were stopped for long
            await client.delete(self.key)  # a count may have been added since, and RQ refuses a name that is there
            await asyncio.to_thread(self.register_birth)
        busy = WorkerStatus.BUSY if self._running else WorkerStatus.IDLE
        state = WorkerStatus.SUSPENDED if self._suspended else busy
        pipeline = client.pipeline(transaction=False)
        fields: dict[Any, Any] = {WorkerField.LAST_HEARTBEAT: time_text(now), WorkerField.STATE: state.value}
        fields |= {WorkerField.RUNNING: len(self._running), WorkerField.CAPACITY: self._settings.concurrency}
        pipeline.hset(self.key, mapping=fields)
        pipeline.expire(self.key, self.worker_ttl + 60)
        expires = int(now.timestamp()) + self.worker_ttl
        for _, running, _ in list(self._running.values()):
            pipeline.hset(running.execution_key, EXECUTION_HEARTBEAT, str(now.timestamp()))
            pipeline.expire(running.execution_key, self.worker_ttl)
            pipeline.zadd(running.running_key, {running.running_entry: expires}, xx=True)
            pipeline.zadd(running.executions_key, {running.execution: expires + 60}, xx=True)
            pipeline.expire(running.executions_key, self.worker_ttl + 60)
        await pipeline.execute()

    async def _obey(self) -> None:
        """RQ's commands: shutdown, and stop-job for one wake. And ours: stop-turn, when a user said /stop (stop.lua)."""
        while True:
            try:
                async for data in self._server.heard(self.pubsub_channel_name):
                    self._command(data)
            except Exception as error:
                survived("obey", "commands not heard", error)
            await asyncio.sleep(RETRY_SECONDS)

    def _command(self, data: bytes) -> None:
        try:
            payload = json.loads(data)
            command, job_id = payload.get("command"), payload.get("job_id")
        except (ValueError, AttributeError, RecursionError):
            log.get().warning("command not understood")
            return
        log.get().info("command", command=str(command)[:40])
        if command == "shutdown":
            self._stopping.set()
        elif command == "stop-job" and isinstance(job_id, str) and job_id in self._running:
            task, _, lease = self._running[job_id]
            if lease is not None:
                lease.killed_by_operator = True
            task.cancel()
        elif command == "stop-turn" and isinstance(job_id, str) and job_id in self._running:
            _, _, lease = self._running[job_id]
            at_ms = str(payload.get("at_ms"))
            if lease is not None and at_ms.isdecimal():
                lease.drop_until(int(at_ms))

    async def _drain(self) -> None:
        """Let running wakes end within the grace time; hand the rest back without spending an attempt."""
        if self._tasks:
            log.get().info("draining", running=len(self._tasks))
            await asyncio.wait(self._tasks, timeout=self._settings.grace_seconds)
        while self._tasks:  # one that is just claiming its key is let through, and cancelled when it holds the lease
            for task, _, _ in list(self._running.values()):
                task.cancel()
            await asyncio.wait(self._tasks, timeout=0.1)


def _lane_name(queue: str) -> str:
    return queue.rpartition("-")[0]


def _refusal(data: bytes, lane: Lane, lease: Lease | None) -> str | None:
    """Why this job is none of ours; None when it is."""
    try:
        func_name, args = called(data)
    except ValueError as error:
        return str(error)
    if func_name != JOBS[lane.name]:
        return f"function {func_name!r:.80} is not allowed on {lane.name}"
    if lease is not None and args != [lease.key]:
        return "arguments do not match the key"
    return None
