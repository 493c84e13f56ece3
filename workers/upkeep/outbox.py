"""Outbox rows of destinations that Redis knows nothing of: their worker died between commit and publishing."""

from __future__ import annotations

from shared import metrics
from shared.background import survived
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.pipeline import Pipeline
from workers.upkeep.housekeeping_duty import AT_ONCE


class UnknownReplies:
    """Wakes the destinations that wait in the outbox and are not awake. Each must be found so at two looks in a row: at one
    alone, its worker may be about to publish."""

    def __init__(self, pipe: Pipeline) -> None:
        self.every_seconds = pipe.settings.sweep_seconds
        self._outbox = pipe.store.outbox
        self._deliveries = pipe.deliveries
        self._asleep: set[str] = set()  # at the last look

    async def look(self) -> float:
        """Once through all waiting destinations."""
        after, asleep = "", set[str]()
        while waiting := await self._outbox.waiting_destinations(after=after, limit=AT_ONCE):
            after = waiting[-1][0]
            awake = await self._deliveries.awake([destination for destination, _ in waiting])
            for (destination, first), is_awake in zip(waiting, awake, strict=True):
                if is_awake:
                    continue
                asleep.add(destination)
                if destination in self._asleep:
                    await self._publish(destination, first)
            self._asleep |= asleep  # at once: a look that is cut short shall not have been for nothing
        self._asleep = asleep
        return self.every_seconds

    async def _publish(self, destination: str, first: int) -> None:
        reach("housekeep.before_outbox_wake")
        try:
            await self._deliveries.put(destination, first, str(first).encode())
        except Unavailable as error:
            survived("housekeeper", "not woken from the outbox", error, destination=destination)
        else:
            metrics.RECOVERED.labels("deliveries", "outbox").inc()
