"""Whether every key gets on while a run lasts: how long the first pending message of a key stays the first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from tests.faults.evidence import query

EVERY_SECONDS = 1.0
USUAL_FACTOR = 5
IN_TIME = 1.5  # times the seconds in which the load comes
HEADS = "SELECT session_key, MIN(seq) AS seq FROM inbox WHERE state = 'pending' GROUP BY session_key"


@dataclass(slots=True)
class Progress:
    """Looks at the journal. Times are on CLOCK_MONOTONIC."""

    database_url: str
    _heads: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)  # first and last time seen

    async def watch(self) -> None:
        while True:
            with suppress(Exception):  # the database is away just now
                self._note(await asyncio.to_thread(self._look))
            await asyncio.sleep(EVERY_SECONDS)

    def longer_than(self, seconds: float, away: Sequence[tuple[float, float]], load_seconds: float) -> list[str]:
        """The messages that stood first for longer than that, without the time in which a server was away. A slow machine is
        given more time: where half of all messages had to wait long, five times as long as they, and where nine tenths of the
        load were worked off late, as much longer as that took. A few keys that are stuck change neither."""
        waits = {
            head: last - first - sum(max(0.0, min(back, last) - max(went, first)) for went, back in away)
            for head, (first, last) in self._heads.items()
        }
        if not waits:
            return []
        bound = max(seconds * self._slowness(load_seconds), USUAL_FACTOR * median(waits.values()))
        return [f"{key}: message {seq} waited {wait:.0f} s" for (key, seq), wait in waits.items() if wait > bound]

    def _slowness(self, load_seconds: float) -> float:
        """How much longer than the load lasted it took to work nine tenths of it off; 1 where that was in time."""
        began = min(first for first, _ in self._heads.values())
        ended = sorted(last for _, last in self._heads.values())
        return max(1.0, (ended[len(ended) * 9 // 10] - began) / (IN_TIME * load_seconds))

    def _look(self) -> list[tuple[str, int]]:
        return [(row["session_key"], row["seq"]) for row in query(self.database_url, HEADS)]

    def _note(self, heads: Sequence[tuple[str, int]]) -> None:
        now = time.monotonic()
        for head in heads:
            first, _ = self._heads.get(head, (now, now))
            self._heads[head] = (first, now)
