"""Stateless requests that have ended and that nobody has forgotten: whoever waited for the answer died or went away."""

from __future__ import annotations

from shared.pipeline import Pipeline
from workers.upkeep.housekeeping_duty import AT_ONCE

AFTER_MS = 60_000  # by then whoever waited for the answer has read it
EVERY_SECONDS = 30.0


class EndedRequests:
    """Forgets them. Two housekeepers may do it at the same time."""

    every_seconds = EVERY_SECONDS

    def __init__(self, pipe: Pipeline) -> None:
        self._stateless = pipe.store.stateless

    async def look(self) -> float:
        """Forget some; the next look comes at once while there may be more."""
        ended = await self._stateless.ended(older_than_ms=AFTER_MS, limit=AT_ONCE)
        for id in ended:
            await self._stateless.forget(id)
        return 0.0 if len(ended) == AT_ONCE else self.every_seconds
