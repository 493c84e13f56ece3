"""Retention alone: `python -m tests.bench.pruning`, on the database that the settings name, as a housekeeper does it.

What is in it at the start is older than the defaults allow: the clock is 30 days ahead. `longest_write_ms` is how long the longest
transaction took, with its wait for others.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import uvloop

from shared import log, settings
from shared.clock import now_ms
from shared.pipeline import open_pipeline
from shared.store.database import Row, Step
from tests.bench.board import Sample
from workers.upkeep.prune import DAY_MS, ExpiredRecords

AHEAD_MS = 30 * DAY_MS  # so what was there at the start is too old by default, and what comes meanwhile is not


async def prune() -> Sample:
    """Look until nothing more is old, with the rests that a housekeeper makes."""
    log.setup("warning", "bench")
    async with open_pipeline(settings.load()) as pipe:
        until, longest = now_ms(), 0.0
        write = pipe.store.database.write

        async def timed(*steps: Step, **how: Any) -> list[list[Row]]:
            nonlocal longest
            begun = time.perf_counter()
            try:
                return await write(*steps, **how)
            finally:
                longest = max(longest, time.perf_counter() - begun)

        pipe.store.database.write = timed  # type: ignore[method-assign]
        duty = ExpiredRecords(pipe, clock=lambda: until + AHEAD_MS)
        begun = time.perf_counter()
        while (rest := await duty.look()) < duty.every_seconds:
            await asyncio.sleep(rest)
    return {"prune_seconds": time.perf_counter() - begun, "longest_write_ms": 1000 * longest}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(prune())))
