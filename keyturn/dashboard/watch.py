"""Looks at the deployment for all open pages together, and keeps the last hour for the charts.

However many pages are open, there is one look per second at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic

from shared.background import survived
from shared.lane_key import TURNS
from shared.pipeline import Pipeline
from shared.reading.overview import Overview, overview
from shared.value import value

FRESH_SECONDS = 1.0
SAMPLE_SECONDS = 10.0
SAMPLES = 360  # an hour


@value
class Sample:
    """A moment of the last hour."""

    ready: int
    running: int
    waiting: int
    parts_per_second: float


class Watch:
    """The newest look, and the last hour. Numbers of the last hour are kept in memory: they begin with this process."""

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        self._looking = asyncio.Lock()
        self._newest: tuple[float, Overview] | None = None
        self._counted: tuple[float, int] | None = None  # when, and the number of the newest part then
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)

    async def look(self) -> Overview:
        """The deployment as it was within the last second."""
        async with self._looking:
            if self._newest is None or monotonic() - self._newest[0] > FRESH_SECONDS:
                seen = await overview(self._pipe)
                self._newest = monotonic(), seen
            return self._newest[1]

    async def sample(self) -> None:
        """Note how things stand, every ten seconds, until cancelled."""
        while True:
            try:
                self._note(await self.look())
            except Exception as error:
                survived("watch", "no sample taken", error)
            await asyncio.sleep(SAMPLE_SECONDS)

    def _note(self, seen: Overview) -> None:
        turns, stored = seen.lane(TURNS), seen.stored
        rate = 0.0
        if stored is not None:
            now = monotonic()
            if self._counted is not None and now > self._counted[0]:
                rate = max(0, stored.newest_part - self._counted[1]) / (now - self._counted[0])
            self._counted = now, stored.newest_part
        self.samples.append(
            Sample(turns.ready, turns.running, stored.messages.count if stored is not None else 0, rate)
        )
