"""Tells of an event loop that stood still: a turn blocks it, and all other turns of the process wait."""

from __future__ import annotations

import asyncio
import time

from shared import log

LOOK_SECONDS = 0.5
STALL_SECONDS = 2.0  # that a look comes late before it is told
FIX = "an agent or a tool may block it: call what blocks with asyncio.to_thread. Or the machine is overloaded"


async def tell_of_stalls() -> None:
    """Look again and again whether this loop comes to its tasks in time, until cancelled."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(LOOK_SECONDS)
        late = time.monotonic() - before - LOOK_SECONDS
        if late >= STALL_SECONDS:
            log.get().warning("the event loop stood still", seconds=round(late, 1), fix=FIX)
