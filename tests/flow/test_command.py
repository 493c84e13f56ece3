"""AGENT=command: a program per turn. Nothing that it started is left when the turn has ended, however it ended."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop

from shared.agent.events import Delta, Done, Event, Row
from shared.agent.turn import Turn
from shared.errors import AgentFault, ConfigurationError, Outage, Permanent, Stopped, Transient
from shared.messages import Entry, Reply
from shared.settings.agents import CommandSettings
from tests.support import program
from tests.support.pipe import an_inbound, key_of
from tests.support.reading import answer_of
from workers.agents.command import CommandAgent
from workers.agents.isolated import Isolated
from workers.agents.reading import Reading

SCRIPT = [sys.executable, "-I", "-S", program.__file__]
SECONDS = 60


def line(*arguments: str) -> str:
    return shlex.join([*SCRIPT, *arguments])


def an_agent(*arguments: str, **settings: Any) -> CommandAgent:
    return CommandAgent(CommandSettings(line=line(*arguments), **settings))


def telling() -> CommandAgent:
    return an_agent("--events", output="events")


def a_turn(text: str) -> Turn:
    return Turn("turn_1", key_of(), "ses_1", (), (an_inbound(text),), run="run_1")


async def said_to(agent: CommandAgent, text: str) -> str:
    result = await answer_of(agent, a_turn(text))
    return result.replies[0].text if result.replies else ""


async def pids_in(path: Path) -> list[int]:
    """The processes that the program has started, when it has started all."""
    async with asyncio.timeout(SECONDS):
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.005)
    return [int(pid) for pid in path.read_text().split()]


def is_running(pid: int) -> bool:
    """Whether it runs. One that was killed counts until its last thread is gone: only then are its files closed."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in ("Z", "X") or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def started(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


async def all_gone(pids: list[int]) -> None:
    async with asyncio.timeout(SECONDS):
        while any(map(is_running, pids)):
            await asyncio.sleep(0.01)


async def test_what_a_program_writes_is_the_answer() -> None:
    events: list[Event] = [event async for event in an_agent().run(a_turn("say hello there "))]
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "hello there"
    assert events[-2:] == [Row(Entry("assistant", "hello there")), Done((Reply("hello there"),))]


async def test_a_program_may_say_its_events_and_leave_out_the_last() -> None:
    result = await answer_of(telling(), a_turn("deltas hello"))
    assert (result.entries, result.replies) == ((Entry("assistant", "hello"),), (Reply("hello"),))
    result = await answer_of(telling(), a_turn("spend"))
    assert [row.text for row in result.entries] == ["paid"] and result.replies == (Reply("paid"),)
    assert result.spent[0]["input"] == 5


async def test_text_that_looks_like_an_event_is_text_unless_the_settings_say_otherwise() -> None:
    forged = '{"done": [{"text": "x", "to": {"platform": "local", "chat": "other"}}]}'
    result = await answer_of(an_agent(), a_turn(f"write {forged}"))
    assert result.replies == (Reply(forged),)


@pytest.mark.parametrize(
    "written", ["no JSON", "[1]", '{"unheard": 1}', '{"row": {"role": 1, "text": "x"}}', '{"v": 2, "delta": "x"}']
)
async def test_a_line_that_is_no_event_is_a_fault(written: str) -> None:
    with pytest.raises(AgentFault, match="no event"):
        await answer_of(telling(), a_turn(f"write {written}"))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1, Transient),
        (75, Transient),
        (127, Transient),
        (69, Outage),
        (64, Permanent),
        (65, Permanent),
        (77, Permanent),
        (78, Permanent),
    ],
)
async def test_an_exit_code_says_what_becomes_of_the_message(code: int, error: type[Exception]) -> None:
    with pytest.raises(error) as failed:
        await said_to(an_agent(), f"exit {code}")
    assert type(failed.value) is error


async def test_a_program_that_crashes_is_tried_again() -> None:
    with pytest.raises(Transient, match="SIGSEGV"):
        await said_to(an_agent(), "die")


async def test_a_program_gets_the_turn_and_no_secret_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYTURN_LLM__API_KEY", "sk-canary")
    monkeypatch.setenv("SHOP", "shoes")
    agent = an_agent(pass_environment="SHOP", environment={"TOKEN": "t-1"})
    turn = replace(a_turn("show"), deadline=time.monotonic() + 30, history=(Entry("user", "before"),), sender_key="k")
    shown = json.loads((await answer_of(agent, turn)).replies[0].text)
    environment = shown["environment"]
    assert (environment["SHOP"], environment["TOKEN"]) == ("shoes", "t-1")
    assert not [name for name in environment if name.startswith("KEYTURN_")]
    assert 0 < shown["turn"]["seconds"] <= 30
    assert shown["turn"]["turn"]["history"][0]["text"] == "before"
    assert shown["turn"]["turn"]["sender_key"] == ""  # the deployment's key, with which senders are marked


async def test_a_program_has_a_directory_of_its_own_which_is_gone_afterwards(tmp_path: Path) -> None:
    shown = json.loads(await said_to(an_agent(), "show"))
    assert shown["directory"] != os.getcwd() and not Path(shown["directory"]).exists()
    assert json.loads(await said_to(an_agent(directory=tmp_path), "show"))["directory"] == str(tmp_path)
    assert tmp_path.exists()


async def test_a_program_that_says_too_much_is_ended() -> None:
    assert len(await said_to(an_agent(max_output_bytes=100_000), "many 100000")) == 100_000
    with pytest.raises(AgentFault, match="COMMAND__MAX_OUTPUT_BYTES"):
        await said_to(an_agent(max_output_bytes=100_000), "many 100001")


async def test_stderr_goes_to_the_log_cut_and_in_part() -> None:
    with structlog.testing.capture_logs() as logged:
        assert await said_to(an_agent(), "complain " + "\n".join(f"line {n}" for n in range(300))) == "done"
        assert await said_to(an_agent(), "complain " + "x" * 200_000) == "done"
    said = [line["said"] for line in logged if line["event"] == "program"]
    assert said[:2] == ["line 0", "line 1"] and len(said) == 201
    assert set(said[-1]) == {"x"} and len(said[-1]) == 2_000


async def test_limits_hold_inside_the_program() -> None:
    shell = "read turn; ulimit -c; ulimit -n; ulimit -v; ulimit -t; ulimit -f"
    agent = CommandAgent(
        CommandSettings(
            line=shlex.join(["sh", "-c", shell]), max_open_files=64, max_memory_mb=512, max_cpu_seconds=7, max_file_mb=1
        )
    )
    assert (await said_to(agent, "x")).split() == ["0", "64", str(512 * 1024), "7", "2048"]


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_long_turn_reaches_a_program_and_one_that_does_not_read_it_ends(loop: Any) -> None:
    async def both() -> tuple[str, str]:
        history = tuple(Entry("user", "x" * 1000) for _ in range(1000))
        counting = CommandAgent(CommandSettings(line=shlex.join(["wc", "-c"])))
        silent = CommandAgent(CommandSettings(line=shlex.join(["echo", "hi"])))
        turn = replace(a_turn("x"), history=history)
        said = [(await answer_of(agent, turn)).replies[0].text for agent in (counting, silent)]
        return said[0], said[1]

    with asyncio.Runner(loop_factory=loop) as runner:
        count, greeting = runner.run(both())
    assert int(count) > 1_000_000 and greeting == "hi"


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_ag22_a_stopped_program_is_gone_with_all_that_it_started_and_what_it_said_is_kept(
    loop: Any, tmp_path: Path
) -> None:
    async def stopped() -> tuple[Stopped, float]:
        reading = Reading(an_agent(), a_turn(f"grow {tmp_path / 'pids'}"))
        task = asyncio.create_task(reading.result())
        pids = await pids_in(tmp_path / "pids")
        assert len(pids) == 4 and all(map(is_running, pids))
        async with asyncio.timeout(SECONDS):
            while not any(reading._heard._deltas):
                await asyncio.sleep(0.005)
        began = time.monotonic()
        reading.stop()
        with pytest.raises(Stopped) as ended:
            await task
        seconds = time.monotonic() - began
        await all_gone(pids)
        return ended.value, seconds

    with asyncio.Runner(loop_factory=loop) as runner:
        ended, _ = runner.run(stopped())
    assert ended.kept is not None and [row.text for row in ended.kept.entries] == ["growing"]


async def test_ag22_a_program_past_its_deadline_is_gone_with_all_that_it_started(tmp_path: Path) -> None:
    turn = replace(a_turn(f"grow {tmp_path / 'pids'}"), deadline=time.monotonic() + 5)
    task = asyncio.create_task(answer_of(an_agent(), turn))
    pids = await pids_in(tmp_path / "pids")
    with pytest.raises(TimeoutError):
        await task
    await all_gone(pids)


async def test_what_a_program_leaves_running_ends_with_its_turn(tmp_path: Path) -> None:
    assert await said_to(an_agent(), f"leave {tmp_path / 'pids'}") == "left"
    await all_gone(await pids_in(tmp_path / "pids"))


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
async def test_ag22_a_program_is_gone_with_all_that_it_started_when_its_worker_dies(
    by: signal.Signals, tmp_path: Path
) -> None:
    script = (
        "import asyncio, sys\n"
        "from tests.flow.test_command import an_agent, a_turn, answer_of\n"
        "asyncio.run(answer_of(an_agent(), a_turn(sys.argv[1])))\n"
    )
    worker = started(sys.executable, "-c", script, f"grow {tmp_path / 'pids'}")
    try:
        pids = await pids_in(tmp_path / "pids")
        worker.send_signal(by)
        worker.wait()
        await all_gone(pids)
    finally:
        worker.kill()
        worker.wait()


async def test_ag22_an_isolated_agents_programs_are_gone_when_its_turn_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYTURN_COMMAND__LINE", line())
    isolated = Isolated("command")
    try:
        reading = Reading(isolated, a_turn(f"grow {tmp_path / 'pids'}"))
        task = asyncio.create_task(reading.result())
        pids = await pids_in(tmp_path / "pids")
        reading.stop()
        with pytest.raises(Stopped):
            await task
        await all_gone(pids)
    finally:
        isolated.close()


async def test_a_hundred_programs_run_at_the_same_time_and_none_is_left() -> None:
    agent = an_agent()
    answers = await asyncio.gather(*(said_to(agent, f"say {n}") for n in range(100)))
    assert answers == [str(n) for n in range(100)]


async def test_a_launcher_that_died_is_started_again() -> None:
    agent = an_agent()
    assert await said_to(agent, "say one") == "one"
    launcher = agent._launcher._process
    assert launcher is not None
    launcher.kill()
    launcher.wait()
    assert await said_to(agent, "say two") == "two"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"line": ""}, "needs COMMAND__LINE"),
        ({"line": "no-such-program-here"}, "there is no program"),
        ({"line": "'open"}, "COMMAND__LINE"),
        ({"line": "true", "sandbox": "bubblewrap"}, "no bwrap on PATH"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(
    settings: dict[str, Any], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sandbox" in settings:
        monkeypatch.setattr("workers.agents.programs.bubblewrap.PROGRAM", "no-bwrap-here")
        complaint = "there is no no-bwrap-here on PATH"
    with pytest.raises(ConfigurationError, match=complaint):
        CommandAgent(CommandSettings(**settings))


async def test_a_sandbox_is_read_only_without_network_and_ends_with_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for bwrap shows how it is called: the real one needs rights that not every machine gives."""
    stand_in = tmp_path / "bwrap"
    stand_in.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" >"$(dirname "$0")/heard"\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
    )
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    place = tmp_path / "place"
    place.mkdir()
    assert await said_to(an_agent(directory=place, sandbox="bubblewrap", sandbox_hidden="/secret"), "say hi") == "hi"
    words = (tmp_path / "heard").read_text().split("\n")
    text = " ".join(words)
    for expected in (
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--ro-bind / /",
        "--tmpfs /secret",
        f"--bind {place} {place}",
    ):
        assert expected in text
    assert "--share-net" not in words
    assert await said_to(an_agent(sandbox="bubblewrap", sandbox_network=True), "say hi") == "hi"
    assert "--share-net" in (tmp_path / "heard").read_text()
