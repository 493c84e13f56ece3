"""Isolated turns: a turn that brings its process down hurts no other."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.agent.events import Delta
from shared.agent.turn import Result, Turn
from shared.embedded import child
from shared.embedded.child import die_with
from shared.errors import AgentFault, Crashed, Permanent, Stopped, Transient
from shared.messages import Entry
from tests.support import agents
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.reading import answer_of
from workers.agents import isolated as isolated_module
from workers.agents.heard import Heard
from workers.agents.isolated import Isolated
from workers.agents.reading import Reading
from workers.turn.take import take_turns


@pytest.fixture
async def isolated() -> AsyncIterator[Isolated]:
    agent = Isolated("tests.support.agents:obey")
    yield agent
    agent.close()


@asynccontextmanager
async def an_isolated(agent: str) -> AsyncIterator[Isolated]:
    isolated = Isolated(agent)
    try:
        yield isolated
    finally:
        isolated.close()


def a_turn(text: str) -> Turn:
    history = (Entry("user", "before", "in_1", {"sender": "Ann"}),)
    return Turn("turn_1", key_of(), "ses_1", history, (an_inbound(text),))


async def test_each_turn_has_a_process_of_its_own(isolated: Isolated) -> None:
    pids = {(await answer_of(isolated, a_turn("hello"))).replies[0].text for _ in range(3)}
    assert len(pids) == 3
    assert str(os.getpid()) not in pids


async def test_a_turn_that_kills_its_process_is_told_apart_from_one_that_fails(isolated: Isolated) -> None:
    with pytest.raises(Crashed):
        await answer_of(isolated, a_turn("crash"))
    with pytest.raises(Transient, match="RuntimeError: why"):
        await answer_of(isolated, a_turn("raise why"))
    with pytest.raises(Permanent, match="no"):
        await answer_of(isolated, a_turn("refuse no"))
    assert (await answer_of(isolated, a_turn("hello"))).entries[0].role == "assistant"


async def test_an_isolated_agent_sees_how_the_programs_that_it_runs_end(isolated: Isolated) -> None:
    assert (await answer_of(isolated, a_turn("run exit 3"))).replies[0].text == "3"


async def test_a_cancelled_turn_does_not_go_on(isolated: Isolated, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    turn = asyncio.create_task(answer_of(isolated, a_turn(f"hang {told}")))
    while not told.exists() or not told.read_text():
        await asyncio.sleep(0.01)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    async with asyncio.timeout(30):
        while Path(f"/proc/{told.read_text()}").exists():
            await asyncio.sleep(0.01)


async def test_a_cancelled_turn_does_not_go_on_though_it_blocks_its_event_loop(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    async with an_isolated("tests.support.agents:block") as agent:
        turn = asyncio.create_task(answer_of(agent, a_turn(str(told))))
        while not told.exists() or not told.read_text():
            await asyncio.sleep(0.01)
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        async with asyncio.timeout(30):
            while Path(f"/proc/{told.read_text()}").exists():
                await asyncio.sleep(0.01)


async def test_events_come_out_of_the_process_as_they_happen_and_a_stop_keeps_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard, taken = asyncio.Event(), Heard.take

    def take(self: Heard, event: object) -> None:
        taken(self, event)
        if event == Delta("half"):
            heard.set()

    monkeypatch.setattr(Heard, "take", take)
    async with an_isolated("tests.support.agents:begin_to_speak") as agent:
        reading = Reading(agent, a_turn("hello"))
        task = asyncio.create_task(reading.result())
        await asyncio.wait_for(heard.wait(), 60)
        reading.stop()
        with pytest.raises(Stopped) as stopped:
            await task
    assert stopped.value.kept == Result((Entry("assistant", "first half"),))


@pytest.mark.parametrize(
    ("agent", "fault"),
    [
        ("say_much", "an event of 178.* bytes; isolated, 16777216 are the most"),
        ("say_nonsense", "int, which is no event"),
    ],
)
async def test_what_an_isolated_agent_may_not_yield_is_named_as_its_fault(agent: str, fault: str) -> None:
    async with an_isolated(f"tests.support.agents:{agent}") as isolated:
        with pytest.raises(AgentFault, match=fault):
            await answer_of(isolated, a_turn("hello"))


async def test_an_isolated_turn_ends_at_its_deadline_and_its_process_with_it(
    isolated: Isolated, tmp_path: Path
) -> None:
    told = tmp_path / "pid"
    await answer_of(isolated, a_turn("hello"))  # the fork server is there
    with pytest.raises(TimeoutError):
        await answer_of(isolated, replace(a_turn(f"hang {told}"), deadline=time.monotonic() + 3))
    async with asyncio.timeout(30):
        while (pid := told.exists() and told.read_text()) and Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


async def test_a_killed_worker_leaves_neither_files_nor_processes_behind(tmp_path: Path) -> None:
    program = f"""
import asyncio, os, signal
from tests.flow.test_isolated import a_turn
from tests.support.reading import answer_of
from workers.agents.isolated import Isolated
isolated = Isolated("tests.support.agents:obey")
asyncio.run(answer_of(isolated, a_turn("hello")))
open({str(tmp_path / "fork_server")!r}, "w").write(str(isolated._fork_server.pid))
os.kill(os.getpid(), signal.SIGKILL)
"""
    home = tmp_path / ("long" * 30)  # longer than the name of a socket may be
    home.mkdir()
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env={**os.environ, "TMPDIR": str(home), "PYTHONPATH": os.getcwd()}
    )
    assert await killed.wait() == -signal.SIGKILL
    async with asyncio.timeout(30):
        while Path(f"/proc/{(tmp_path / 'fork_server').read_text()}").exists():
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


async def test_a_message_whose_worker_died_runs_isolated_and_is_set_aside_when_it_kills_again(
    rig: Rig, isolated: Isolated
) -> None:
    await rig.accept("crash")
    await rig.accept("hello")
    await rig.lease()  # a worker begins the first attempt, and dies with it
    parts = replace(rig.parts(), isolated_agent=isolated)
    for _ in range(2):
        await rig.expire_lease(rig.pipe.turns, key_of())
        await rig.pipe.turns.recover(key_of())
        await take_turns(await rig.lease(), parts)
    [dead] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert (dead["reason"], dead["attempts"]) == ("crashed", 3)
    assert await rig.transcript() == ["hello", "echo: hello"]


async def test_an_error_of_an_isolated_attempt_is_logged_and_shown_as_the_agents_own(
    rig: Rig, isolated: Isolated
) -> None:
    await rig.accept("raise why")
    await rig.lease()  # a worker begins the first attempt, and dies with it
    parts = replace(rig.parts(), isolated_agent=isolated)
    with capture_logs() as lines:
        for _ in range(2):
            await rig.expire_lease(rig.pipe.turns, key_of())
            await rig.pipe.turns.recover(key_of())
            await take_turns(await rig.lease(), parts)
    failed = [line for line in lines if line["event"] == "turn failed"]
    assert {line["error"] for line in failed} == {"RuntimeError"}
    assert all(f"{agents.__file__}:" in line["at"] for line in failed)
    [dead] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert dead["detail"] == "RuntimeError: why"


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
    rig: Rig, isolated: Isolated
) -> None:
    await rig.accept("hello")
    await rig.lease()
    for _ in range(MOST - 2):
        await a_worker_dies(rig)
    await recovered(rig)
    await take_turns(await rig.lease(), replace(rig.parts(), isolated_agent=isolated))
    assert (await rig.transcript())[0] == "hello"
    assert await rig.pipe.store.dead.all(state="open", limit=10) == []


async def test_a_message_whose_workers_all_died_is_set_aside_at_the_limit_and_the_key_goes_on(
    rig: Rig, isolated: Isolated
) -> None:
    await rig.accept("hello")
    await rig.accept("next")
    await rig.lease()
    for _ in range(MOST - 1):
        await a_worker_dies(rig)
    await recovered(rig)
    async with asyncio.timeout(60):
        await take_turns(await rig.lease(), replace(rig.parts(), isolated_agent=isolated))
    [dead] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert (dead["reason"], dead["attempts"]) == ("crashed", MOST)
    assert "echo: next" in await rig.transcript()


async def test_a_fork_server_that_starts_slowly_costs_no_attempt_and_is_not_taken_for_one_that_runs(
    rig: Rig, isolated: Isolated, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.accept("hello")
    await rig.lease()  # a worker begins the first attempt, and dies with it
    parts = replace(rig.parts(), isolated_agent=isolated)
    started: list[subprocess.Popen[bytes]] = []
    start = child.start

    def starting(*command: Any, **about: Any) -> subprocess.Popen[bytes]:
        started.append(start(*command, **about))
        return started[-1]

    monkeypatch.setattr(child, "start", starting)
    monkeypatch.setattr(isolated_module, "START_SECONDS", 0.0)
    for _ in range(5):  # more than MAX_ATTEMPTS
        await recovered(rig)
        await take_turns(await rig.lease(), parts)
        assert started[-1].poll() is not None
    assert len(started) == 5 and await rig.pipe.store.dead.all(state="open", limit=10) == []
    monkeypatch.setattr(isolated_module, "START_SECONDS", 600.0)
    await recovered(rig)
    await take_turns(await rig.lease(), parts)
    assert (await rig.transcript())[0] == "hello"
