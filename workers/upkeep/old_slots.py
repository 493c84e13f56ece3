"""What schedules leave behind: slots that came long ago, schedules that have ended, and files of answers."""

from __future__ import annotations

import asyncio

from shared.clock import now_ms
from shared.output_file import remove_old_outputs
from shared.pipeline import Pipeline
from workers.upkeep.housekeeping_duty import AT_ONCE

EVERY_SECONDS = 600.0
DAY_MS = 24 * 3_600_000


class OldSlots:
    """Removes what is older than SCHEDULE__KEPT_DAYS, some at a time. Two housekeepers may do it at the same time; files are
    removed where this one runs."""

    every_seconds = EVERY_SECONDS

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe

    async def look(self) -> float:
        """Remove some. While more wait, the next look comes soon."""
        settings = self._pipe.settings
        if not settings.schedule.kept_days:
            return self.every_seconds
        before = now_ms() - int(settings.schedule.kept_days * DAY_MS)
        rows = await self._pipe.store.schedules.prune(before, AT_ONCE)
        files = await asyncio.to_thread(remove_old_outputs, settings.data_dir, before, AT_ONCE)
        return 1.0 if AT_ONCE in (rows, files) else self.every_seconds
