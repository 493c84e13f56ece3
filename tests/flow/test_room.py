"""What one worker process runs at once: turns up to CONCURRENCY, and replies whatever turns are running."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from shared import keys
from shared.agent.turn import Result, Turn
from shared.lane_key import TURNS
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.support.pipe import Rig
from tests.support.working import working
from workers.agents.results import answered
from workers.process import room as rooms

WAIT_SECONDS = 60.0


class Holding:
    """Turns that run until they are let go, and how many of them did at once."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.most = 0
        self.begun: list[str] = []
        self.let_go = asyncio.Semaphore(0)

    async def run(self, turn: Turn) -> Result:
        chat = turn.mail[0].source.chat
        self.begun.append(chat)
        self.running.add(chat)
        self.most = max(self.most, len(self.running))
        if not turn.mail[0].text.startswith("quick"):
            await self.let_go.acquire()
        self.running.discard(chat)
        return answered("done")


async def until(true: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            held = true()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(0.005)


async def all_answered(pipe: Pipeline) -> bool:
    return bool((await pipe.store.overview.counts(10_000))["inbound_waiting"] == 0)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_never_more_turns_run_at_once_than_concurrency_says(
    make_settings: Callable[..., Settings], concurrency: int
) -> None:
    """With eight partitions, so more fetchers than turns, before the backlog and while more comes."""
    async with open_pipeline(make_settings(partitions=8, log_level="error")) as pipe:
        rig, agent = Rig(pipe), Holding()
        for n in range(20):
            await rig.accept("hello", chat=f"before-{n}")
        async with working(pipe, agent, slots=concurrency):
            for n in range(40):
                if n < 20:
                    await rig.accept("hello", chat=f"later-{n}")
                await until(lambda n=n: len(agent.begun) == min(n + concurrency, 40))  # type: ignore[misc]
                agent.let_go.release()
            await until(lambda: all_answered(pipe))
    assert agent.most == concurrency
    assert len(set(agent.begun)) == 40


async def test_a_worker_without_room_leaves_wakes_in_their_queue_for_others(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(partitions=4, log_level="error")) as pipe:
        rig, full, idle = Rig(pipe), Holding(), Holding()
        async with working(pipe, full, slots=1):
            await rig.accept("hello", chat="first")
            await until(lambda: full.begun == ["first"])
            for n in range(8):
                await rig.accept("hello", chat=f"c{n}")
            async with working(pipe, idle, slots=8):
                await until(lambda: len(idle.begun) == 8)
                for agent in (full, idle):
                    for _ in range(8):
                        agent.let_go.release()
                await until(lambda: all_answered(pipe))
        assert full.begun == ["first"]
        for partition in range(4):
            assert await pipe.servers.all[0].client.llen(f"rq:queue:{keys.queue_name(TURNS, partition)}") == 0


async def test_a_finished_reply_leaves_while_turns_fill_the_worker(make_settings: Callable[..., Settings]) -> None:
    """Also one that is found in its queue: nobody took it where it was written."""
    async with open_pipeline(make_settings(partitions=2, log_level="error")) as pipe:
        rig, agent = Rig(pipe), Holding()
        await rig.accept("quick", chat="found")
        await rig.run_turns("agent:main:webhook:dm:found")
        async with working(pipe, agent, slots=2):
            for n in range(6):
                await rig.accept("hello", chat=f"c{n}")
            await until(lambda: len(agent.running) == 2)
            await until(lambda: nothing_to_send(pipe))
            agent.let_go.release()
            await until(lambda: len(agent.begun) == 3 and len(agent.running) == 2)
            await until(lambda: nothing_to_send(pipe))
            for _ in range(6):
                agent.let_go.release()
            await until(lambda: all_answered(pipe))


async def nothing_to_send(pipe: Pipeline) -> bool:
    return bool((await pipe.store.overview.counts(10_000))["outbox_waiting"] == 0)


async def test_an_idle_worker_with_one_place_takes_a_wake_of_any_partition_as_soon_as_one_of_the_only_partition(
    make_settings: Callable[..., Settings],
) -> None:
    """One place serves all queues: none of them is looked at in turn while nothing waits. A turn around 64 queues took 3 s."""
    only, any_of_many = [await _seconds_until_begun(make_settings, partitions) for partitions in (1, 64)]
    assert any_of_many < 0.5 + 5 * only  # the machine is as slow for both


async def _seconds_until_begun(make_settings: Callable[..., Settings], partitions: int) -> float:
    """The median of several messages."""
    async with open_pipeline(make_settings(partitions=partitions, log_level="error")) as pipe:
        rig, agent, took = Rig(pipe), Holding(), []
        async with working(pipe, agent, slots=1):
            await rig.accept("quick", chat="first")
            await until(lambda: all_answered(pipe))
            for n in range(15):
                began = time.monotonic()
                await rig.accept("quick", chat=f"c{partitions}-{n}")
                await until(lambda n=n: f"c{partitions}-{n}" in agent.begun)  # type: ignore[misc]
                took.append(time.monotonic() - began)
                await until(lambda: all_answered(pipe))
    return sorted(took)[len(took) // 2]


async def test_a_second_worker_gets_a_third_of_a_backlog_that_the_first_could_run_alone(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has taken all that it takes without a pause when the second begins."""
    monkeypatch.setattr(rooms, "FIRST_STEP", 50)
    monkeypatch.setattr(rooms, "PAUSE_SECONDS", WAIT_SECONDS)
    async with open_pipeline(make_settings(partitions=4, log_level="error")) as pipe:
        rig, first, second = Rig(pipe), Holding(), Holding()
        for n in range(100):
            await rig.accept("hello", chat=f"c{n}")
        async with working(pipe, first, slots=100):
            await until(lambda: len(first.begun) >= 50)
            async with working(pipe, second, slots=100):
                await until(lambda: len(first.begun) + len(second.begun) == 100)
                for agent in (first, second):
                    for _ in agent.begun:
                        agent.let_go.release()
                await until(lambda: all_answered(pipe))
    assert len(second.begun) > 100 / 3
