"""Looks at the deployment for all open pages together, and keeps the last hour for the charts.

However many pages are open, there is one look per second at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from time import monotonic

import redis

from shared.background import survived
from shared.errors import Unavailable
from shared.lane_key import TURNS
from shared.pipeline import Pipeline
from shared.reading.conversations import RecentConversation, recent_conversations
from shared.reading.overview import ANSWER_SECONDS, Overview, in_time, overview
from shared.reading.pauses import Pause, pauses_now
from shared.reading.stage_times import StageTimes, stage_times
from shared.value import value

FRESH_SECONDS = 1.0
SAMPLE_SECONDS = 10.0
SAMPLES = 360  # an hour
RECENT = 8  # conversations


@value
class Sample:
    """A moment of the last hour. None: nobody could tell then, for a store was away."""

    ready: int | None
    running: int | None
    waiting: int | None
    parts_per_second: float | None


class Watch:
    """The newest look, and the last hour. Numbers of the last hour are kept in memory: they begin with this process."""

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        self._looking = asyncio.Lock()
        self._looking_at_pauses = asyncio.Lock()
        self._newest: tuple[float, Overview] | None = None
        self._counted: tuple[float, int] | None = None  # when, and the number of the newest part then
        self._paused_at = float("-inf")
        self.pauses: tuple[Pause, ...] = ()  # as the last look at them found them
        self.recent: tuple[RecentConversation, ...] = ()  # as the last look found them
        self.stages: tuple[StageTimes, ...] = ()  # as the last look at them found them
        self._staged_at = float("-inf")
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)

    async def look(self) -> Overview:
        """The deployment as it was within the last second."""
        async with self._looking:
            if self._newest is None or monotonic() - self._newest[0] > FRESH_SECONDS:
                seen = await overview(self._pipe)
                recent = await in_time(recent_conversations(self._pipe, RECENT)) if seen.stored is not None else None
                if recent is not None:
                    self.recent = recent
                if seen.stored is not None and monotonic() - self._staged_at > SAMPLE_SECONDS:
                    stages = await in_time(stage_times(self._pipe.store))
                    self.stages = stages if stages is not None else self.stages
                    self._staged_at = monotonic()
                self._newest = monotonic(), seen
            return self._newest[1]

    async def look_at_pauses(self, *, now: bool = False) -> None:
        """Know what is paused, as it was within the last second; while a store is away, what was known last. `now`: anew."""
        async with self._looking_at_pauses:
            if not now and monotonic() - self._paused_at < FRESH_SECONDS:
                return
            with suppress(Unavailable, redis.RedisError, TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):  # pages wait for it
                    self.pauses = await pauses_now(self._pipe)
            self._paused_at = monotonic()
        if now:
            self._newest = None  # its verdict names the pauses, too

    async def sample(self) -> None:
        """Note how things stand, every ten seconds, until cancelled."""
        while True:
            try:
                self._note(await self.look())
            except Exception as error:
                survived("watch", "no sample taken", error)
            await asyncio.sleep(SAMPLE_SECONDS)

    def _note(self, seen: Overview) -> None:
        turns, stored, gone = seen.lane(TURNS), seen.stored, seen.redis_gone
        rate = None
        if stored is not None:
            now = monotonic()
            if self._counted is not None and now > self._counted[0]:
                rate = max(0, stored.newest_part - self._counted[1]) / (now - self._counted[0])
            self._counted = now, stored.newest_part
        self.samples.append(
            Sample(
                None if gone else turns.ready,
                None if gone else turns.running,
                stored.messages.count if stored is not None else None,
                rate,
            )
        )
