"""Records that are older than RETENTION__… allows: removed in steps so small that no turn waits for one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial

from shared import metrics
from shared.background import survived
from shared.clock import now_ms
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.pipeline import Pipeline
from shared.store.retention import Retention
from shared.value import value

EVERY_SECONDS = 60.0
DAY_MS = 24 * 3_600_000
REST = 4  # times as long as the work before it: turns need the same database
FEWEST, MOST = 10, 1000  # rows of one step
LONG_SECONDS, SHORT_SECONDS = 0.02, 0.005  # a longer step is followed by smaller ones, a shorter one by larger ones

RemoveOld = Callable[[int, int], Awaitable[int]]


@value
class RetentionKind:
    """A kind of record: its name, how many days it is kept, and one step of removing those from before a time (ms)."""

    name: str
    days: int
    remove: RemoveOld


class ExpiredRecords:
    """Removes what is too old, one step of each kind in a look. Two housekeepers may do it at the same time."""

    every_seconds = EVERY_SECONDS

    def __init__(self, pipe: Pipeline, clock: Callable[[], int] = now_ms) -> None:
        self._clock = clock
        self._kinds = [kind for kind in kinds(pipe) if kind.days]
        self._limits = dict.fromkeys((kind.name for kind in self._kinds), FEWEST * 10)

    async def look(self) -> float:
        """Do one step of each kind. While something is left to remove, the next look comes after a rest."""
        began, removed = time.monotonic(), 0
        for kind in self._kinds:
            reach("housekeep.before_prune")
            try:
                removed += await self._step(kind)
            except Unavailable:
                raise
            except Exception as error:  # a record that cannot be removed keeps no other kind for ever
                survived("housekeeper", "records not removed", error, kind=kind.name)
        rest = REST * (time.monotonic() - began)
        return min(rest, self.every_seconds) if removed else self.every_seconds

    async def _step(self, kind: RetentionKind) -> int:
        began = time.monotonic()
        count = await kind.remove(self._clock() - kind.days * DAY_MS, self._limits[kind.name])
        self._limits[kind.name] = next_limit(self._limits[kind.name], time.monotonic() - began)
        if count:
            metrics.PRUNED.labels(kind.name).inc(count)
        return count


def next_limit(limit: int, seconds: float) -> int:
    """How many rows the next step may take after one that took so long."""
    if seconds > LONG_SECONDS:
        return max(limit // 2, FEWEST)
    return min(limit * 2, MOST) if seconds < SHORT_SECONDS else limit


def kinds(pipe: Pipeline) -> list[RetentionKind]:
    """Every kind of record that has a time."""
    days, store = pipe.settings.retention, pipe.store.retention
    return [
        RetentionKind("outbox", days.outbox_days, store.outbox),  # first: a journal row shrinks when its parts are gone
        RetentionKind("journal", days.journal_days, partial(_journal, store, days.turn_days - days.journal_days)),
        RetentionKind("turns", days.turn_days, store.turns),
        RetentionKind("dead", days.dead_days, store.closed_letters),
        RetentionKind("open dead", days.open_dead_days, store.open_letters),
        RetentionKind("sessions", days.session_days, partial(store.sessions, noted=pipe.settings.memory.enabled)),
        RetentionKind("superseded", days.superseded_days, store.superseded),
        RetentionKind("search", days.search_days, store.search),
        RetentionKind("usage", days.usage_days, partial(_usage, store)),
        RetentionKind("audit", days.audit_days, store.audit),
        RetentionKind("blobs", days.blob_days, store.blobs),
    ]


async def _journal(store: Retention, days_between: int, before: int, limit: int) -> int:
    """Turns may be kept longer than words, or for ever (then `days_between` is negative): their messages still name them."""
    turns_before = before - days_between * DAY_MS if days_between >= 0 else 0
    return await store.journal(before, limit, turns_before)


async def _usage(store: Retention, before: int, limit: int) -> int:
    """What was spent is kept by day."""
    return await store.usage(datetime.fromtimestamp(before / 1000, UTC).date().isoformat(), limit)
