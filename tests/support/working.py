"""A real worker and a housekeeper in the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from shared.pipeline import Pipeline
from workers.agents.contract import Agent, Answers
from workers.agents.resolve import resolve
from workers.process.parts import open_parts
from workers.process.run import LANES, _worker, open_rooms
from workers.upkeep.housekeeper import Housekeeper


@asynccontextmanager
async def working(
    pipe: Pipeline, agent: Agent | Answers | None = None, slots: int = 50, *, keep: bool = True
) -> AsyncIterator[None]:
    """Turns are run and replies delivered until the block ends; with `keep`, a housekeeper looks after them."""
    stopping, name = asyncio.Event(), f"test-{uuid4().hex[:6]}"
    rooms = open_rooms(pipe.settings.model_copy(update={"concurrency": slots}))
    async with open_parts(pipe, agent or resolve("echo"), name) as parts:
        running = [
            asyncio.create_task(_worker(pipe, server, LANES, name).run(parts, server, rooms, stopping, LANES))
            for server in pipe.servers.all
        ]
        if keep:
            running.append(asyncio.create_task(Housekeeper(pipe).run(stopping)))
        try:
            yield
        finally:
            stopping.set()
            await asyncio.gather(*running)


@asynccontextmanager
async def keeping(pipe: Pipeline) -> AsyncIterator[None]:
    """A housekeeper runs until the block ends."""
    stopping = asyncio.Event()
    task = asyncio.create_task(Housekeeper(pipe).run(stopping))
    try:
        yield
    finally:
        stopping.set()
        await task
