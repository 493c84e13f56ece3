"""Runs whose message has ended without them: a worker that had lost its key wrote a step all the same."""

from __future__ import annotations

from shared.clock import now_ms
from shared.pipeline import Pipeline

EVERY_SECONDS = 600.0
AGE_MS = 3_600_000  # long after any turn's deadline
AT_ONCE = 500


class LeftoverRuns:
    """Deletes what such a worker wrote down. Two housekeepers may do it at the same time."""

    every_seconds = EVERY_SECONDS

    def __init__(self, pipe: Pipeline) -> None:
        self._runs = pipe.store.runs

    async def look(self) -> float:
        """Delete some. While more wait, the next look comes soon."""
        deleted = await self._runs.forget_left_over(now_ms() - AGE_MS, AT_ONCE)
        return 1.0 if deleted == AT_ONCE else self.every_seconds
