"""Wakes what should be awake. Several may run at once; nothing's safety depends on it, only progress after a loss.

- keys whose lease or delay has ended, or whose wake is lost       (Redis, as their time comes)
- wakes that a worker popped and never started                     (Redis, every sweep)
- what dead workers left in RQ's registries                        (Redis, every sweep)
- journal rows and outbox rows of keys that Redis knows nothing of (SQL, every sweep)
- conversations that are over and were not looked at yet           (SQL, see workers/watcher.py)
- rows of transcripts that search does not know yet                (SQL, every sweep)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis
from rq.worker_registration import REDIS_WORKER_KEYS as WORKERS
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from shared import keys, log, metrics
from shared.errors import PipelineError
from shared.failpoints import reach
from shared.lane import Lane, Recovered
from shared.lane.garbage import purge
from shared.lane.wake import popped_key
from shared.pipeline import Pipeline
from shared.redis_servers import Server
from workers.watcher import Watcher

LOOK_SECONDS = 0.5  # the longest pause between looks at what is due
AT_ONCE = 500
INDEX_REST = 2  # times as long as the work before it
STUCK_SECONDS = 1.0  # a popped wake starts within milliseconds; after this its worker is gone, or too slow
ANY_AGE_MS = -(10**12)  # rows are not judged by their age: clocks of this deployment may disagree
MAIL_PER_KEY = 100
FILL_AT_ONCE = 20  # mailboxes: after a loss of Redis there are many, and each costs a round trip to both stores


class Housekeeper:
    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        self._popped: dict[tuple[str, bytes], float] = {}  # (queue, job id) -> first seen in its intermediate list
        # What SQL had and Redis did not at the last sweep. At one look alone it may be on its way from one to the other.
        self._asleep: set[str] = set()
        self._unpublished: set[str] = set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Look after everything until `stopping` is set."""
        await asyncio.gather(
            self._repeat(stopping, self._wake_due, LOOK_SECONDS),
            self._repeat(stopping, self._sweep, self._pipe.settings.sweep_seconds),
            self._repeat(stopping, Watcher(self._pipe).look, self._pipe.settings.memory.look_seconds),
            self._repeat(stopping, self._index, self._pipe.settings.sweep_seconds),
        )

    async def _repeat(self, stopping: asyncio.Event, look: Callable[[], Awaitable[float]], pause: float) -> None:
        while not stopping.is_set():
            wait = pause
            try:
                wait = min(pause, await look())
            except (PipelineError, redis.RedisError, OSError, TimeoutError) as error:
                log.get().warning("look cut short", error=f"{type(error).__name__}: {error}")
            except Exception:  # whatever it was, the next look begins anew: progress after a loss depends on it
                log.get().exception("look failed")
            try:
                async with asyncio.timeout(max(wait, 0.01)):
                    await stopping.wait()
            except TimeoutError:
                pass

    async def _wake_due(self) -> float:
        """Wake the keys whose time has come; say how long until the next one's."""
        soonest = float("inf")
        for lane in self._pipe.lanes:
            for server in self._pipe.servers.all:
                late, next_s = await lane.due(server, AT_ONCE)
                for key, recovered in zip(late, await self._recover(lane, late), strict=True):
                    if recovered is not Recovered.NOTHING:
                        metrics.RECOVERED.labels(lane.name, recovered.name.lower()).inc()
                    if recovered is Recovered.LEASE_EXPIRED:
                        metrics.LEASE_LOST.inc()
                        log.get().warning("lease expired, woken again", lane=lane.name, key=key)
                soonest = 0 if len(late) == AT_ONCE else min(soonest, next_s)
        return soonest

    async def _recover(self, lane: Lane, late: Sequence[str]) -> list[Recovered]:
        """What became of each key. One that holds garbage is cleaned and looked at again; it stops none of the others."""
        outcomes = await asyncio.gather(*map(lane.recover, late), return_exceptions=True)
        found = []
        for key, outcome in zip(late, outcomes, strict=True):
            if isinstance(outcome, redis.ResponseError):
                await purge(lane, key)
                outcome = await lane.recover(key)
            if isinstance(outcome, BaseException):
                raise outcome
            found.append(outcome)
        return found

    async def _sweep(self) -> float:
        for lane in self._pipe.lanes:
            for server in self._pipe.servers.all:
                await self._requeue_stuck(lane, server)
        for server in self._pipe.servers.all:
            await self._bury_workers(server)
        await self._wake_journal()
        await self._wake_outbox()
        return float("inf")

    async def _index(self) -> float:
        """Index what was said for search. While more waits it goes on after a rest: turns need the same database."""
        began = time.monotonic()
        more = await self._pipe.store.search.index()
        return INDEX_REST * (time.monotonic() - began) if more else float("inf")

    async def _requeue_stuck(self, lane: Lane, server: Server) -> None:
        now = time.monotonic()
        for partition in self._pipe.servers.partitions_of(server):
            queue = keys.queue_name(lane.name, partition)
            ids: Any = await server.client.lrange(popped_key(queue), 0, -1)  # anybody's bytes
            for gone in [seen for seen in self._popped if seen[0] == queue and seen[1] not in ids]:
                del self._popped[gone]
            stuck = [id for id in ids if now - self._popped.setdefault((queue, id), now) > STUCK_SECONDS]
            if stuck:
                reach("housekeep.before_requeue")
                back = await lane.requeue(server, queue, stuck)
                metrics.RECOVERED.labels(lane.name, "never_started").inc(back)
                log.get().warning("wakes put back", queue=queue, count=back)

    async def _bury_workers(self, server: Server) -> None:
        """Take what dead workers left in RQ's registries: nobody else does, and dashboards would show it for ever."""
        queues = []
        for lane in self._pipe.lanes:
            for partition in self._pipe.servers.partitions_of(server):
                queues.append(keys.queue_name(lane.name, partition))
                await lane.abandon(server, queues[-1], AT_ONCE)
        known: Any = list(await server.client.smembers(WORKERS))
        pipeline = server.client.pipeline(transaction=False)
        for worker in known:
            pipeline.exists(worker)
        for worker, alive in zip(known, await pipeline.execute() if known else (), strict=True):
            if not alive:
                pipeline.srem(WORKERS, worker)
                for queue in queues:
                    pipeline.srem(WORKERS_BY_QUEUE_KEY % queue, worker)
        await pipeline.execute()

    async def _wake_journal(self) -> None:
        """Fill the mailboxes of keys that have waiting rows in the journal and nothing in Redis."""
        journal, after, asleep = self._pipe.store.journal, "", set[str]()
        while waiting := await journal.waiting_keys(after=after, older_than_ms=ANY_AGE_MS, limit=AT_ONCE):
            after = waiting[-1]
            for lane in (self._pipe.turns, self._pipe.control):
                mine = [key for key in waiting if self._pipe.lane_of(key) is lane]
                awake = await lane.awake(mine)
                asleep |= {key for key, is_awake in zip(mine, awake, strict=True) if not is_awake}
            forgotten = [key for key in waiting if key in asleep and key in self._asleep]
            for start in range(0, len(forgotten), FILL_AT_ONCE):
                await asyncio.gather(*map(self._fill, forgotten[start : start + FILL_AT_ONCE]))
        self._asleep = asleep

    async def _fill(self, key: str) -> None:
        reach("housekeep.before_journal_wake")
        rows = await self._pipe.store.journal.pending(key, after=0, limit=MAIL_PER_KEY)
        lane = self._pipe.lane_of(key)
        await asyncio.gather(*(lane.put(key, row.seq, row.payload.encode()) for row in rows))
        metrics.RECOVERED.labels(lane.name, "journal").inc()
        log.get().warning("woken from the journal", key=key)

    async def _wake_outbox(self) -> None:
        """Publish outbox rows whose worker died between commit and publishing."""
        outbox, after, unpublished = self._pipe.store.outbox, "", set[str]()
        while waiting := await outbox.waiting_destinations(after=after, older_than_ms=ANY_AGE_MS, limit=AT_ONCE):
            after = waiting[-1][0]
            awake = await self._pipe.deliveries.awake([destination for destination, _ in waiting])
            for (destination, first), is_awake in zip(waiting, awake, strict=True):
                if is_awake:
                    continue
                unpublished.add(destination)
                if destination in self._unpublished:
                    reach("housekeep.before_outbox_wake")
                    await self._pipe.deliveries.put(destination, first, str(first).encode())
                    metrics.RECOVERED.labels("deliveries", "outbox").inc()
        self._unpublished = unpublished
