"""Journal rows of keys that Redis knows nothing of: their mailboxes are filled again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shared import log, metrics
from shared.background import survived
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.pipeline import Pipeline
from workers.upkeep.housekeeping_duty import AT_ONCE

MAIL_PER_KEY = 100
FILL_AT_ONCE = 20  # mailboxes: after a loss of Redis there are many, and each costs a round trip to both stores


class UnknownMail:
    """Fills the mailboxes of keys that wait in the journal and are not awake.

    A key must be found so at two looks in a row: at one alone, its mail may be on its way from the journal to Redis. Rows
    are not judged by their age, because the clocks of a deployment may disagree.
    """

    def __init__(self, pipe: Pipeline) -> None:
        self.every_seconds = pipe.settings.sweep_seconds
        self._pipe = pipe
        self._asleep: set[str] = set()  # at the last look

    async def look(self) -> float:
        """Once through all waiting keys."""
        journal, after, asleep = self._pipe.store.journal, "", set[str]()
        while waiting := await journal.waiting_keys(after=after, limit=AT_ONCE):
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
        return self.every_seconds

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
