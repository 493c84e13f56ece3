"""The wakes that one worker runs: each is started, its key claimed, and its job run under the lease.

After a crash anywhere in here the wake is found in RQ's intermediate list, or its key's lease runs out.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import redis

from shared import log, metrics
from shared.busy import BusyMode
from shared.errors import PipelineError, Unavailable
from shared.failpoints import reach
from shared.lane import Lane, Lease, Started
from shared.lane.leaving import OldPlaces
from shared.lane.rq_names import popped_key
from shared.lane.wake import RegisteredWorker, called
from shared.pipeline import JOBS
from shared.value import value
from workers.jobs import ALLOWED
from workers.process.duty import Duty
from workers.process.failed_job import record_failure
from workers.process.parts import ProcessParts
from workers.process.room import Room, Slot

CLAIM_LIMIT = 1  # mail per claim: each message is a turn of its own
PUT_OFF = timedelta(seconds=1)  # for a key whose database does not answer


@value
class ServedQueue:
    """A queue of this worker: what its wakes are for, and how many of them may run."""

    name: str
    lane: Lane
    room: Room


@value
class HeldWake:
    """A wake whose key is ours, and the task that runs its job."""

    task: asyncio.Task[None]
    lease: Lease


class Wakes:
    """Runs wakes for one worker on one Redis. What goes wrong in one of them ends neither the worker nor another."""

    def __init__(self, parts: ProcessParts, worker: RegisteredWorker, duty: Duty) -> None:
        self.duty = duty
        self.held: dict[str, HeldWake] = {}  # by job id
        self.capacity = parts.pipe.settings.concurrency  # turns at once, for RQ's readers
        self._parts = parts
        self._worker = worker
        self._old_places = OldPlaces()
        self._tasks: set[asyncio.Task[None]] = set()  # also those that have not claimed their key yet

    def start(self, queue: ServedQueue, popped: bytes, slot: Slot) -> None:
        """Run a wake that was popped. It leaves its slot when it is over."""
        task = asyncio.create_task(self._run(queue, popped, slot))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def start_here(self, queue: ServedQueue, job_id: str) -> bool:
        """Run a wake that this process is about to queue, as if it had popped it. False: there is no room for it."""
        if not self.duty.takes_wakes or (slot := queue.room.take()) is None:
            return False
        self.start(queue, job_id.encode(), slot)
        return True

    async def put_back(self, queue: ServedQueue, popped: bytes) -> None:
        """Leave a wake to whoever has room. If Redis is away, it is found where popped wakes are found."""
        with suppress(PipelineError, redis.RedisError, OSError):
            await queue.lane.requeue(self._worker.server, queue.name, [popped])

    def kill(self, job_id: str) -> None:
        """An operator wants this wake to end: its attempt counts as failed."""
        if (wake := self.held.get(job_id)) is not None:
            wake.lease.killed_by_operator = True
            wake.task.cancel()

    def drop_until(self, job_id: str, at_ms: int) -> None:
        """A user said /stop then: end the turn that runs under this wake, if it answers what was received before."""
        if (wake := self.held.get(job_id)) is not None:
            wake.lease.drop_until(at_ms)

    def tell(self, job_id: str, mode: BusyMode | None, after: int) -> None:
        """Mail came for the turn that runs under this wake, or its busy mode was set for mail after that number."""
        if (wake := self.held.get(job_id)) is not None:
            wake.lease.told(mode, after)

    async def drain(self, grace_seconds: float) -> None:
        """Let wakes end within the grace time; then give the rest back without spending an attempt."""
        if self._tasks:
            log.get().info("draining", running=len(self._tasks))
            await asyncio.wait(self._tasks, timeout=grace_seconds)
        while self._tasks:  # one that is just claiming its key is let through, and cancelled when it holds the lease
            for wake in list(self.held.values()):
                wake.task.cancel()
            await asyncio.wait(self._tasks, timeout=0.1)

    async def _run(self, queue: ServedQueue, popped: bytes, slot: Slot) -> None:
        lane, job_id, lease = queue.lane, popped.decode(errors="replace"), None
        try:
            if job_id.encode() != popped:
                await self._drop(queue, popped)
                return
            if not self.duty.takes_wakes:  # popped just after the worker was told so: not for us
                await self.put_back(queue, popped)
                return
            reach("start.before_claim")
            started = await lane.start(self._worker, queue.name, job_id, limit=CLAIM_LIMIT)
            lease = started.lease
            reach("start.after_claim")
            if started.wake is None:
                return
            if (reason := _forged(started, lane)) is not None:
                _report_forged(job_id, queue, reason)
                await record_failure(started.wake, f"refused: {reason}")
                if lease is not None:
                    await lease.release(spent=False)
            elif lease is None:
                await lane.finish(started.wake)
            elif await self._old_places.has_more(lease):
                await lease.release(delay=self._old_places.put_off(), spent=False)
            else:
                await self._hold(lease, lane)
        except Unavailable as error:
            log.get().warning("wake put off", job=job_id, queue=queue.name, error=str(error))
            if lease is not None and not lease.ended:
                with suppress(PipelineError):  # if Redis is away too, the lease runs out
                    await lease.release(delay=PUT_OFF, spent=False)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.get().exception("wake failed", job=job_id, queue=queue.name)
            with suppress(PipelineError, redis.RedisError, OSError):
                if lease is not None:
                    await record_failure(lease.wake, f"{type(error).__name__}: {error}")
                    if not lease.ended:
                        await lease.release(delay=self._parts.pipe.settings.lease, spent=True)
        finally:
            slot.leave()
            if lease is not None:  # given back or not, it is renewed no longer: at the latest it runs out
                lane.renewal.let_go(lease)

    async def _hold(self, lease: Lease, lane: Lane) -> None:
        """Run the job of a lease. A job that is cancelled gives its key back, unless another worker has it."""
        task = asyncio.current_task()
        assert task is not None
        lease.on_lost = task.cancel
        self.held[lease.wake.id] = HeldWake(task, lease)
        try:
            await ALLOWED[JOBS[lane.name]](lease, self._parts)
        except asyncio.CancelledError:
            if not lease.lost and not lease.killed_by_operator and not self.duty.stopping.is_set():
                raise
            if not lease.ended:
                with suppress(PipelineError):
                    await asyncio.shield(lease.release(spent=False))
        finally:
            del self.held[lease.wake.id]
            lane.renewal.let_go(lease)
        if lease.lost:  # the key is another's; the job is still ours to end
            await lane.finish(lease.wake)

    async def _drop(self, queue: ServedQueue, popped: bytes) -> None:
        _report_forged(popped.decode(errors="replace")[:40], queue, "its id is not text")
        server = self._worker.server
        await server.asked(server.client.lrem(popped_key(queue.name), 1, popped))  # type: ignore[arg-type]


def _report_forged(job_id: str, queue: ServedQueue, reason: str) -> None:
    metrics.FORGED_JOB.inc()
    log.get().error("forged job refused", job=job_id, queue=queue.name, reason=reason)


def _forged(started: Started, lane: Lane) -> str | None:
    """Why this job is none of ours; None when it is."""
    try:
        func_name, args = called(started.data)
    except ValueError as error:
        return str(error)
    if func_name != JOBS[lane.name]:
        return f"function {func_name!r:.80} is not allowed on {lane.name}"
    if started.lease is not None and args != [started.lease.key]:
        return "arguments do not match the key"
    return None
