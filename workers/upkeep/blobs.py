"""Blobs to which nothing refers: of turns that failed after their files were fetched, and of conversations that were deleted."""

from __future__ import annotations

from datetime import timedelta

from shared import log, metrics
from shared.blobs.contract import SHARDS
from shared.pipeline import Pipeline
from workers.upkeep.housekeeping_duty import AT_ONCE


class UnreferredBlobs:
    """Removes them, one shard in a look. A blob that was kept within MEDIA__ORPHAN_HOURS stays: a turn that is still running
    may be about to refer to it."""

    def __init__(self, pipe: Pipeline) -> None:
        self.every_seconds = pipe.settings.sweep_seconds
        self._blobs = pipe.blobs
        self._references = pipe.store.blob_references
        self._age = timedelta(hours=pipe.settings.media.orphan_hours)
        self._shard, self._after = 0, ""

    async def look(self) -> float:
        """Look at the next blobs, of one shard."""
        found = await self._blobs.unused_for(self._age, self._shard, self._after, AT_ONCE)
        removed = 0
        for digest in await self._references.unreferred(found):
            removed += await self._blobs.remove(digest, self._age)
        if removed:
            metrics.BLOBS_REMOVED.inc(removed)
            log.get().info("blobs removed to which nothing refers", count=removed)
        if len(found) == AT_ONCE:
            self._after = found[-1]
        else:
            self._shard, self._after = (self._shard + 1) % SHARDS, ""
        return self.every_seconds
