"""What traces cost a worker: `python -m tests.bench.traced PARTS MESSAGES`, with the settings' sample.

One process accepts some messages and works them, without and with tracing, so that a slow moment hits both; each comes first
every second time, because later messages meet a larger database. Working alone is timed, by CPU time of all threads, and with
the export of what was recorded: at full size that fills a batch, as it does in a busy worker. The off switch cannot be compared with
code that has none, so it is counted: how often a message comes past it, times what one look takes.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from timeit import timeit
from typing import Any

import uvloop
from opentelemetry import trace

from shared import keys, log, settings, stages, tracing
from shared.interpreter import share_with_threads
from shared.lane_key import TURNS
from shared.pipeline import Pipeline, open_pipeline
from shared.store import parts as stored_parts
from tests.bench.board import Sample
from tests.bench.keyturn import accept_all, an_inbound
from tests.bench.load import arrivals
from workers.agents.resolve import resolve
from workers.process.parts import ProcessParts, open_parts
from workers.process.run import GC_THRESHOLDS, _worker, open_rooms
from workers.turn import waiting

PER_KEY = 5
LOOKS = 1_000_000
LIMIT_SECONDS = 120.0
NAME = "bench"


async def measure(slices: int, messages: int) -> Sample:
    config = settings.load()
    log.setup("warning", "bench")
    gc.set_threshold(*GC_THRESHOLDS)
    async with (
        open_pipeline(config) as pipe,
        open_parts(pipe, resolve("echo"), NAME) as parts,
        tracing.open_tracing(pipe, "work"),
    ):
        on, first = tracing.active, 0
        off_ms, on_ms = list[float](), list[float]()
        for part in range(slices + 1):  # the first pair warms up
            both = ((None, off_ms), (on, on_ms))
            for by, found in both if part % 2 else reversed(both):
                tracing.active = by
                gc.collect()
                gc.freeze()  # as a worker does when it starts: looks through all of it would hit one side or the other by chance
                used = await _worked(pipe, parts, first, messages)
                first += messages
                if part:
                    found.append(1000 * used / messages)
        tracing.active = None
        with _counted_looks() as looked:
            await _worked(pipe, parts, first, messages)
        tracing.active = on
    looks = looked[0] / messages
    seen = {"tracing": tracing}
    look_ms = 1000 * timeit("tracing.active is None", timer=time.process_time, number=LOOKS, globals=seen) / LOOKS
    ratios = [sampled / off for sampled, off in zip(on_ms, off_ms, strict=True)]
    return {
        "cpu_ms": median(off_ms),
        "traced_cpu_ms": median(on_ms),
        "sampled_more": 100 * (median(ratios) - 1),
        "off_looks": looks,
        "off_more": 100 * looks * look_ms / median(off_ms),
    }


async def _worked(pipe: Pipeline, parts: ProcessParts, first: int, messages: int) -> float:
    """Accept messages of fresh keys, and work them; the CPU time of working."""
    chats = max(messages // PER_KEY, 1)
    pairs = list(arrivals(chats, PER_KEY))[:messages]
    await accept_all(pipe, [an_inbound(first + chat, n) for chat, n in pairs])
    await _exported()  # what a receiver would send
    [server], stopping = pipe.servers.all, asyncio.Event()
    begun = time.process_time()
    worker = _worker(pipe, server, (TURNS,), NAME)
    running = asyncio.create_task(worker.run(parts, server, open_rooms(pipe.settings), stopping))
    async with asyncio.timeout(LIMIT_SECONDS):  # nobody is there to mend a lease that ran out
        while await server.client.zcard(keys.due(TURNS)) and not running.done():
            await asyncio.sleep(0.01)
    stopping.set()
    await running
    await _exported()
    return time.process_time() - begun


async def _exported() -> None:
    if tracing.active is not None:
        provider: Any = trace.get_tracer_provider()
        await asyncio.to_thread(provider.force_flush)


@contextmanager
def _counted_looks() -> Iterator[list[int]]:
    """Counts the stages that begin and the other calls that look whether traces are on."""
    looked, stage = [0], stages.stage.__init__
    asked = [(stored_parts, "traceparent"), (waiting, "annotate")]
    originals = [vars(module)[name] for module, name in asked]

    def counted(original: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            looked[0] += 1
            return original(*args, **named)

        return call

    stages.stage.__init__ = counted(stage)  # type: ignore[method-assign]
    for (module, name), original in zip(asked, originals, strict=True):
        vars(module)[name] = counted(original)
    try:
        yield looked
    finally:
        stages.stage.__init__ = stage  # type: ignore[method-assign]
        for (module, name), original in zip(asked, originals, strict=True):
            vars(module)[name] = original


if __name__ == "__main__":
    share_with_threads()
    print(json.dumps(uvloop.run(measure(int(sys.argv[1]), int(sys.argv[2])))))
