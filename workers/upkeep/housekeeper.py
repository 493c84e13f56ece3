"""Wakes what should be awake. Several may run at once; nothing's safety depends on it, only progress after a loss.

For each Redis server by itself, so that one that is away holds up none of the others:
- keys whose lease or delay has ended, or whose wake is lost or late       (as their time comes)
- keys that belong to another server since the list of servers was changed (the same)
- what workers left in RQ's lists and registries                           (every sweep, see workers/upkeep/rq_leftovers.py)
For all together:
- journal rows and outbox rows of keys that Redis knows nothing of         (SQL, every sweep)
- conversations that are over and were not looked at yet                   (SQL, see workers/upkeep/memory_watch.py)
- rows of transcripts that search does not know yet                        (SQL, every sweep)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import redis

from shared import log, metrics
from shared.background import survived
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.lane import Lane, Recovered
from shared.lane.elsewhere import move
from shared.lane.garbage import is_garbage, purge
from shared.pipeline import Pipeline
from shared.redis_servers import Server
from workers.upkeep.memory_watch import Watcher
from workers.upkeep.rq_leftovers import Tidying

LOOK_SECONDS = 0.5  # the longest pause between looks at what is due
LOOK_LIMIT_SECONDS = 120.0  # the longest that a look may take: what it did stays done, and the next begins anew
AT_ONCE = 500
INDEX_REST = 2  # times as long as the work before it
ANY_AGE_MS = -(10**12)  # rows are not judged by their age: clocks of this deployment may disagree
MAIL_PER_KEY = 100
FILL_AT_ONCE = 20  # mailboxes: after a loss of Redis there are many, and each costs a round trip to both stores


class Housekeeper:
    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        # What SQL had and Redis did not at the last sweep. At one look alone it may be on its way from one to the other.
        self._asleep: set[str] = set()
        self._unpublished: set[str] = set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Look after everything until `stopping` is set."""
        sweep_seconds = self._pipe.settings.sweep_seconds
        looks: list[tuple[Callable[[], Awaitable[float]], float]] = []
        for server in self._pipe.servers.all:
            looks.append((partial(self._wake_due, server), LOOK_SECONDS))
            looks.append((Tidying(self._pipe, server).look, sweep_seconds))
        looks.append((self._wake_journal, sweep_seconds))
        looks.append((self._wake_outbox, sweep_seconds))
        looks.append((self._index, sweep_seconds))
        looks.append((Watcher(self._pipe).look, self._pipe.settings.memory.look_seconds))
        await asyncio.gather(*(self._repeat(stopping, look, pause) for look, pause in looks))

    async def _repeat(self, stopping: asyncio.Event, look: Callable[[], Awaitable[float]], pause: float) -> None:
        while not stopping.is_set():
            wait = pause
            try:
                async with asyncio.timeout(LOOK_LIMIT_SECONDS):
                    wait = min(pause, await look())
            except (
                Exception
            ) as error:  # whatever it was, the next look begins anew: progress after a loss depends on it
                survived("housekeeper", "look cut short", error)
            try:
                async with asyncio.timeout(max(wait, 0.01)):
                    await stopping.wait()
            except TimeoutError:
                pass

    # -- keys whose time has come

    async def _wake_due(self, server: Server) -> float:
        """Wake the keys whose time has come; say how long until the next one's."""
        soonest = float("inf")
        for lane in self._pipe.lanes:
            late, next_s, left = await self._wake_page(lane, server, 0)
            while late == AT_ONCE:
                late, next_s, left = await self._wake_page(lane, server, left)
            soonest = min(soonest, next_s)
        return soonest

    async def _wake_page(self, lane: Lane, server: Server, skip: int) -> tuple[int, float, int]:
        """Look at the next keys that are due. Gives how many there were, the seconds until the next, and how many to skip."""
        late, next_s = await lane.due(server, AT_ONCE, skip=skip)
        outcomes = await asyncio.gather(*(self._look_at(lane, server, key) for key in late), return_exceptions=True)
        stuck: dict[str, Exception] = {}  # these stay due, and none of the others waits for them
        for key, outcome in zip(late, outcomes, strict=True):
            if isinstance(outcome, Recovered):
                self._count(lane, key, outcome)
            elif isinstance(outcome, Unavailable) and lane.servers.of_key(key) is server:
                raise outcome
            elif isinstance(outcome, Exception):
                stuck[key] = outcome
        for key, error in [*stuck.items()][:1]:  # one line for all: there may be hundreds, twice a second
            survived("housekeeper", "keys not looked at", error, lane=lane.name, key=key, count=len(stuck))
        return len(late), next_s, skip + len(stuck)

    async def _look_at(self, lane: Lane, server: Server, key: str) -> Recovered:
        """Wake a key, or move it to its own server. One that holds garbage is cleaned first."""
        if lane.servers.of_key(key) is not server:
            await move(lane, server, key)
            return Recovered.NOTHING
        try:
            return await lane.recover(key)
        except redis.ResponseError as error:
            if not is_garbage(error):
                raise
            await purge(lane, key)
            return await lane.recover(key)

    @staticmethod
    def _count(lane: Lane, key: str, recovered: Recovered) -> None:
        if recovered is not Recovered.NOTHING:
            metrics.RECOVERED.labels(lane.name, recovered.name.lower()).inc()
        if recovered is Recovered.LEASE_EXPIRED:
            metrics.LEASE_LOST.inc()
            log.get().warning("lease expired, woken again", lane=lane.name, key=key)

    # -- rows that no mailbox knows

    async def _wake_journal(self) -> float:
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
                await self._fill_each(forgotten[start : start + FILL_AT_ONCE])
            self._asleep |= asleep  # at once: a look that is cut short shall not have been for nothing
        self._asleep = asleep
        return float("inf")

    async def _fill_each(self, some: Sequence[str]) -> None:
        filled = await asyncio.gather(*map(self._fill, some), return_exceptions=True)
        for key, outcome in zip(some, filled, strict=True):
            if isinstance(outcome, Unavailable):
                survived("housekeeper", "not woken from the journal", outcome, key=key)
            elif outcome is not None:
                raise outcome

    async def _fill(self, key: str) -> None:
        reach("housekeep.before_journal_wake")
        rows = await self._pipe.store.journal.pending(key, after=0, limit=MAIL_PER_KEY)
        lane = self._pipe.lane_of(key)
        await asyncio.gather(*(lane.put(key, row.seq, row.payload.encode()) for row in rows))
        metrics.RECOVERED.labels(lane.name, "journal").inc()
        log.get().warning("woken from the journal", key=key)

    async def _wake_outbox(self) -> float:
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
                    await self._publish(destination, first)
            self._unpublished |= unpublished
        self._unpublished = unpublished
        return float("inf")

    async def _publish(self, destination: str, first: int) -> None:
        reach("housekeep.before_outbox_wake")
        try:
            await self._pipe.deliveries.put(destination, first, str(first).encode())
        except Unavailable as error:
            survived("housekeeper", "not woken from the outbox", error, destination=destination)
        else:
            metrics.RECOVERED.labels("deliveries", "outbox").inc()

    # -- search

    async def _index(self) -> float:
        """Index what was said for search. While more waits it goes on after a rest: turns need the same database."""
        began = time.monotonic()
        more = await self._pipe.store.search.index()
        return INDEX_REST * (time.monotonic() - began) if more else float("inf")
