"""Rows of transcripts that search does not know yet."""

from __future__ import annotations

import time

from shared.pipeline import Pipeline

REST = 2  # times as long as the work before it: turns need the same database


class SearchIndexing:
    """Indexes what was said. What it has indexed stays so; two housekeepers may do it at the same time."""

    def __init__(self, pipe: Pipeline) -> None:
        self.every_seconds = pipe.settings.sweep_seconds
        self._search = pipe.store.search

    async def look(self) -> float:
        """Index some sessions. While more wait, the next look comes after a rest."""
        began = time.monotonic()
        more = await self._search.index()
        return min(REST * (time.monotonic() - began), self.every_seconds) if more else self.every_seconds
