"""What every peer's program does with its arguments."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator

from tests.bench.load import arrivals

try:  # the loop that Keyturn has: the peers that use asyncio get it too
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
except ImportError:
    pass

Fill = Callable[[str, Iterator[tuple[int, int]]], None]


def run(fill: Fill, work: Callable[[str], None]) -> None:
    """`fill URL KEYS PER_KEY` or `work URL`."""
    verb, url, *sizes = sys.argv[1:]
    if verb == "fill":
        keys, per_key = map(int, sizes)
        fill(url, arrivals(keys, per_key))
    else:
        work(url)
