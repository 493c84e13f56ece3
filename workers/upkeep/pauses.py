"""Pauses: Redis holds those that the database has, and no key stays parked for one that is over."""

from __future__ import annotations

from shared import log
from shared.pauses import enforce_pauses
from shared.pipeline import Pipeline


class KeptPauses:
    """Does what a crash or a loss of Redis left undone. While nothing was ever paused, a look is one small query, and one to each Redis."""

    def __init__(self, pipe: Pipeline) -> None:
        self.every_seconds = pipe.settings.sweep_seconds
        self._pipe = pipe

    async def look(self) -> float:
        """Compare once, on all servers that answer; Unavailable where one does not."""
        done = await enforce_pauses(self._pipe)
        if done.woken:
            log.get().warning("woken after a pause", count=done.woken)
        if done.away is not None:
            raise done.away
        return self.every_seconds
