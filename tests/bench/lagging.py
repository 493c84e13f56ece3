"""`python -m tests.bench.lagging work …`: a worker under measurement that notes how late its event loop is."""

from __future__ import annotations

import asyncio
import sys
import time

from tests.bench.record import Lags
from tests.bench.working import main

EVERY_SECONDS = 0.01
_running: set[asyncio.Task[None]] = set()


async def _look(lags: Lags) -> None:
    while True:
        due = time.perf_counter() + EVERY_SECONDS
        await asyncio.sleep(EVERY_SECONDS)
        lags.add(max(0, int(1e6 * (time.perf_counter() - due))))


def begin() -> None:
    _running.add(asyncio.get_running_loop().create_task(_look(Lags())))


if __name__ == "__main__":
    main(sys.argv[1:], begin)
