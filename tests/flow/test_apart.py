"""Turns run apart: a turn that brings its process down hurts no other."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.agent.turn import Turn
from shared.embedded.child import die_with
from shared.errors import Crashed, Permanent, Transient
from shared.messages import Entry
from tests.support.pipe import Rig, an_inbound, key_of
from workers.agents.isolated import Apart
from workers.turn.parts import TurnParts
from workers.turn.take import take_turns


@pytest.fixture
async def apart() -> AsyncIterator[Apart]:
    agent = Apart("tests.support.agents:obey", 60)
    yield agent
    agent.close()


def a_turn(text: str) -> Turn:
    history = (Entry("user", "before", "in_1", {"sender": "Ann"}),)
    return Turn("turn_1", key_of(), "ses_1", history, (an_inbound(text),))


async def test_each_turn_has_a_process_of_its_own(apart: Apart) -> None:
    pids = {(await apart.run(a_turn("hello"))).replies[0].text for _ in range(3)}
    assert len(pids) == 3
    assert str(os.getpid()) not in pids


async def test_a_turn_that_kills_its_process_is_told_apart_from_one_that_fails(apart: Apart) -> None:
    with pytest.raises(Crashed):
        await apart.run(a_turn("crash"))
    with pytest.raises(Transient, match="RuntimeError: why"):
        await apart.run(a_turn("raise why"))
    with pytest.raises(Permanent, match="no"):
        await apart.run(a_turn("refuse no"))
    assert (await apart.run(a_turn("hello"))).entries[0].role == "assistant"


async def test_a_cancelled_turn_does_not_go_on(apart: Apart, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    turn = asyncio.create_task(apart.run(a_turn(f"hang {told}")))
    while not told.exists() or not told.read_text():
        await asyncio.sleep(0.01)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    async with asyncio.timeout(30):
        while Path(f"/proc/{told.read_text()}").exists():
            await asyncio.sleep(0.01)


async def test_a_killed_worker_leaves_neither_files_nor_processes_behind(tmp_path: Path) -> None:
    program = f"""
import asyncio, os, signal
from tests.flow.test_apart import a_turn
from workers.agents.isolated import Apart
apart = Apart("tests.support.agents:obey", 60)
asyncio.run(apart.run(a_turn("hello")))
open({str(tmp_path / "nursery")!r}, "w").write(str(apart._nursery.pid))
os.kill(os.getpid(), signal.SIGKILL)
"""
    home = tmp_path / ("long" * 30)  # longer than the name of a socket may be
    home.mkdir()
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env={**os.environ, "TMPDIR": str(home), "PYTHONPATH": os.getcwd()}
    )
    assert await killed.wait() == -signal.SIGKILL
    async with asyncio.timeout(30):
        while Path(f"/proc/{(tmp_path / 'nursery').read_text()}").exists():
            await asyncio.sleep(0.01)
    assert list(home.iterdir()) == []


def test_a_child_ends_though_its_parent_was_gone_before_it_could_be_watched() -> None:
    """Also where the parent had a handler for the signal: one that is inherited must not swallow it."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        child_id = os.fork()
        if child_id == 0:
            die_with(os.getppid() + 1, signal.SIGTERM)  # nobody's parent: as if it had ended already
            os._exit(0)
        _, status = os.waitpid(child_id, 0)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


async def test_a_message_whose_worker_died_runs_apart_and_is_set_aside_when_it_kills_again(
    rig: Rig, apart: Apart
) -> None:
    await rig.accept("crash")
    await rig.accept("hello")
    await rig.lease()  # a worker begins the first attempt, and dies with it
    parts = TurnParts(rig.pipe, rig.agent, apart, "test")
    for _ in range(2):
        await rig.expire_lease(rig.pipe.turns, key_of())
        await rig.pipe.turns.recover(key_of())
        await take_turns(await rig.lease(), parts)
    [dead] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert (dead["reason"], dead["attempts"]) == ("crashed", 3)
    assert await rig.transcript() == ["hello", "echo: hello"]


MOST = 12  # MAX_ATTEMPTS × 4


async def recovered(rig: Rig) -> None:
    await rig.expire_lease(rig.pipe.turns, key_of())
    await rig.pipe.turns.recover(key_of())


async def a_worker_dies(rig: Rig) -> None:
    """One more worker begins an attempt, and dies with it."""
    await recovered(rig)
    lease = await rig.lease()
    await lease.begin(lease.mail[0].seq)


async def test_an_innocent_message_outlives_any_number_of_killed_workers_up_to_the_limit(
    rig: Rig, apart: Apart
) -> None:
    await rig.accept("hello")
    await rig.lease()
    for _ in range(MOST - 2):
        await a_worker_dies(rig)
    await recovered(rig)
    await take_turns(await rig.lease(), TurnParts(rig.pipe, rig.agent, apart, "test"))
    assert (await rig.transcript())[0] == "hello"
    assert await rig.pipe.store.dead.all(state="open", limit=10) == []


async def test_a_message_whose_workers_all_died_is_set_aside_at_the_limit_and_the_key_goes_on(
    rig: Rig, apart: Apart
) -> None:
    await rig.accept("hello")
    await rig.accept("next")
    await rig.lease()
    for _ in range(MOST - 1):
        await a_worker_dies(rig)
    await recovered(rig)
    async with asyncio.timeout(60):
        await take_turns(await rig.lease(), TurnParts(rig.pipe, rig.agent, apart, "test"))
    [dead] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert (dead["reason"], dead["attempts"]) == ("crashed", MOST)
    assert "echo: next" in await rig.transcript()
