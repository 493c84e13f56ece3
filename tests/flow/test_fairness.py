"""One conversation cannot keep the others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shared.agent.turn import Result, Turn
from shared.pipeline import open_pipeline
from shared.settings import Settings
from tests.support.pipe import Rig
from workers.agents.results import answered
from workers.process.parts import open_parts
from workers.process.run import LANES, _worker, open_rooms


class Counting:
    """Remembers the order of the turns, each of which takes a moment."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def run(self, turn: Turn) -> Result:
        self.heard.append(turn.mail[0].source.chat)
        await asyncio.sleep(0.001)
        return answered("ok")


async def test_a_conversation_that_begins_now_does_not_wait_for_the_backlog(
    make_settings: Callable[..., Settings],
) -> None:
    settings = make_settings(partitions=1, concurrency=2, log_level="error")
    async with open_pipeline(settings) as pipe:
        rig, agent, stopping = Rig(pipe), Counting(), asyncio.Event()
        for n in range(300):
            await rig.accept("old", chat=f"old{n}")
        server = pipe.servers.all[0]
        async with open_parts(pipe, agent, "test") as parts:
            worker = _worker(pipe, server, LANES[:1], "test")
            working = asyncio.create_task(worker.run(parts, server, open_rooms(settings), stopping))
            while len(agent.heard) < 20:
                await asyncio.sleep(0.001)
            before = len(agent.heard)
            await rig.accept("new", chat="fresh")
            while "fresh" not in agent.heard:
                await asyncio.sleep(0.001)
            waited = agent.heard.index("fresh") - before
            while len(agent.heard) < 301:
                await asyncio.sleep(0.001)
            stopping.set()
            await working
    assert waited < 100  # of 280: it did not stand at the end of the line
    assert len(set(agent.heard)) == 301
