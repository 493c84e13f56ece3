"""Background work: turns beside the conversation, whose results come back as mail, once, and that /stop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared import failpoints
from shared.agent.events import Ask, Delta, Event
from shared.agent.turn import Turn
from shared.clock import now_ms
from shared.errors import CannotDo, Permanent
from shared.messages import Kind, Source
from shared.operating.messages import drop_message
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from shared.settings.background import BackgroundSettings
from shared.tasks.results import LOST, SAID_NOTHING, hand_over
from shared.tasks.starting import TEXT_LIMIT, TaskAsker, WantedTask, start_task, stop_tasks
from shared.tasks.task import BackgroundTask, TaskKind, TaskState
from tests.flow.test_control import until
from tests.flow.test_never_stuck import ended
from tests.flow.test_own_tools import calling
from tests.flow.test_own_tools import config as own_tools_config
from tests.store.books import ask, write
from tests.support.openai import Asked, a_call, open_provider
from tests.support.pipe import Rig, key_of
from tests.support.working import working
from workers.agents.llm import LlmAgent
from workers.agents.spoken import answer_events
from workers.turn.conclude import NOBODY_BESIDE
from workers.upkeep.tasks import GRACE_MS, UnseenTasks

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # tests/store/test_tasks.py has both
MakeSettings = Callable[..., Settings]
ASKER = TaskAsker(key_of(), Source("webhook", "c1", user="u1", user_name="Ann"), "webhook:u=u1")


class Worker:
    """Answers `done: <text>`. Told to hang it waits, told to break it fails for good, told to be silent it says nothing."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.release = asyncio.Event()

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        text = turn.mail[0].text
        if text.startswith("hang"):
            yield Delta("…")
            await self.release.wait()
        if text.startswith("break"):
            raise Permanent("as told")
        if text.startswith("ask"):
            yield Ask("q1", "May I?", ("yes", "no"))
            return
        for event in answer_events("" if text.startswith("silent") else f"done: {text}"):
            yield event

    def begun(self, text: str) -> bool:
        return any(turn.mail[0].text == text for turn in self.turns)


@asynccontextmanager
async def at_work(make_settings: MakeSettings, **changes: Any) -> AsyncIterator[tuple[Rig, Worker]]:
    agent = Worker()
    async with open_pipeline(make_settings(titles=False, max_attempts=2, **changes)) as pipe, working(pipe, agent):
        yield Rig(pipe, agent), agent


def wanted(text: str, *, kind: TaskKind = TaskKind.AGENT, asked_at: int = 0) -> WantedTask:
    return WantedTask(kind, text, text, asked_at or now_ms())


async def tasks(pipe: Pipeline) -> list[tuple[str, str]]:
    rows = await ask(pipe.store, "SELECT name, state FROM tasks ORDER BY created_at, name")
    return [(row["name"], row["state"]) for row in rows]


async def over(pipe: Pipeline, count: int = 1) -> list[tuple[str, str]]:
    """The tasks, once there are so many and all of them have ended."""
    async with asyncio.timeout(90):
        while True:
            found = await tasks(pipe)
            if len(found) >= count and all(state != "running" for _, state in found):
                return found
            await asyncio.sleep(0.02)


async def has_rows(rig: Rig, count: int, key: str = key_of()) -> list[str]:
    """The transcript, once it has so many rows."""
    async with asyncio.timeout(90):
        while len(rows := await rig.transcript(key)) < count:
            await asyncio.sleep(0.02)
    return rows


async def settled(pipe: Pipeline) -> None:
    """What a housekeeper does when some time has passed."""
    await write(pipe.store, "UPDATE tasks SET created_at = created_at - :ms", ms=2 * GRACE_MS)
    await UnseenTasks(pipe).look()


async def test_ag54_a_task_starts_beside_a_busy_chat_and_its_result_comes_after_the_turn_once_also_after_a_crash(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, foreseen: Callable[[str], None]
) -> None:
    foreseen("delivery")  # the sender is interrupted between its two writes
    failpoints.arm(tmp_path, "task.after_result", failpoints.RAISE)
    monkeypatch.setattr("workers.delivery.task.reach", failpoints.looking(str(tmp_path)))
    async with at_work(make_settings, lease_seconds=2) as (rig, agent):
        await rig.accept("hang")
        await until(lambda: agent.begun("hang"))
        told = await rig.accept("/background look around")
        await ended(rig.pipe, [told.id])
        await until(lambda: agent.begun("look around"))
        assert await over(rig.pipe) == [("look around", "done")]
        assert await rig.transcript() == [] and failpoints.fired(tmp_path)
        agent.release.set()
        rows = await has_rows(rig, 3)
        await rig.accept("next")
        rows = await has_rows(rig, 5)
    result = "[Background task “look around”]\ndone: look around"
    assert rows == ["hang", "done: hang", result, "next", "done: next"]
    [task] = [turn for turn in agent.turns if turn.mail[0].kind is Kind.TASK]
    assert task.speaker.owner == "webhook:u=u1" and task.mail[0].asker.user == "u1" and task.history == ()


async def test_a_question_aside_knows_the_conversation_and_leaves_it_alone(make_settings: MakeSettings) -> None:
    async with at_work(make_settings) as (rig, agent):
        await rig.accept("hello")
        await has_rows(rig, 2)
        await rig.accept("/btw what did I say?")
        assert (await has_rows(rig, 3))[2] == "[Background task “what did I say?”]\ndone: what did I say?"
        await rig.accept("next")
        await has_rows(rig, 5)
    aside, after = agent.turns[1:]
    assert [row.text for row in aside.history] == ["hello", "done: hello"]
    assert "what did I say?" not in [row.text for row in after.history]


@pytest.mark.parametrize("command", ["background", "btw"])
async def test_what_is_asked_in_the_background_may_be_long(make_settings: MakeSettings, command: str) -> None:
    asked = "a" * TEXT_LIMIT
    async with at_work(make_settings) as (rig, agent):
        told = await rig.accept(f"/{command} {asked}")
        await ended(rig.pipe, [told.id])
        await until(lambda: agent.begun(asked))


async def test_ag23_stop_ends_all_tasks_of_a_turn_also_one_that_is_just_being_started(
    make_settings: MakeSettings,
) -> None:
    async with at_work(make_settings) as (rig, agent):
        accepted = await rig.accept("hang")
        await until(lambda: agent.begun("hang"))
        row = await rig.pipe.store.journal.find(accepted.id)
        assert row is not None
        asked_at = row["received_at"]
        one = await start_task(rig.pipe, wanted("hang one", asked_at=asked_at), ASKER)
        await until(lambda: agent.begun("hang one"))
        inner = replace(ASKER, session_key=str(one.key))
        await start_task(rig.pipe, wanted("hang inner"), inner)
        await until(lambda: agent.begun("hang inner"))
        stop = await rig.accept("/stop")
        await ended(rig.pipe, [accepted.id, stop.id, one.inbound_id])
        late = await start_task(rig.pipe, wanted("late", asked_at=asked_at), ASKER)
        [row] = await ended(rig.pipe, [late.inbound_id])
        assert (row["state"], row["reason"]) == ("superseded", "stopped") and not agent.begun("late")
        await settled(rig.pipe)
        assert dict(await over(rig.pipe, 3)) == dict.fromkeys(("hang inner", "hang one", "late"), "stopped")
        with pytest.raises(CannotDo, match="over"):
            await start_task(rig.pipe, wanted("later"), inner)
        parts = await ask(rig.pipe.store, "SELECT payload FROM outbox WHERE platform = 'webhook'")
        assert any("I stopped 2 background tasks." in part["payload"] for part in parts)
        later = await rig.accept("next")
        await ended(rig.pipe, [later.id])
        rows = await rig.transcript()
    assert not any("Background task" in text for text in rows) and rows[-1] == "done: next"


async def test_a_stop_that_was_interrupted_ends_the_tasks_when_it_is_tried_again(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failpoints.arm(tmp_path, "task.before_stop", failpoints.RAISE)
    monkeypatch.setattr("shared.tasks.starting.reach", failpoints.looking(str(tmp_path)))
    async with at_work(make_settings) as (rig, agent):
        task = await start_task(rig.pipe, wanted("hang one"), ASKER)
        await until(lambda: agent.begun("hang one"))
        at_ms = now_ms()
        with pytest.raises(failpoints.Injected):
            await stop_tasks(rig.pipe, [key_of()], at_ms)
        assert await stop_tasks(rig.pipe, [key_of()], at_ms) == 1
        [row] = await ended(rig.pipe, [task.inbound_id])
        assert (row["state"], row["reason"]) == ("superseded", "stopped")
        assert await over(rig.pipe) == [("hang one", "stopped")]


async def test_ag55_an_agent_reads_that_a_lost_task_is_unknown_and_keeps_what_its_siblings_finished(
    make_settings: MakeSettings,
) -> None:
    async with at_work(make_settings) as (rig, agent):
        for text in ("fine", "break it", "silent one"):
            await start_task(rig.pipe, wanted(text), ASKER)
        dropped = await start_task(rig.pipe, wanted("hang on"), ASKER)
        await until(lambda: agent.begun("hang on"))
        await drop_message(rig.pipe, dropped.inbound_id, tell=False)
        await ended(rig.pipe, [task.inbound_id for task in [dropped]])
        await has_rows(rig, 4)
        while len(await over_or_running(rig.pipe, "running")) > 2:
            await asyncio.sleep(0.02)
        await settled(rig.pipe)
        await settled(rig.pipe)
        assert dict(await over(rig.pipe, 4)) == {
            "fine": "done",
            "break it": "failed",
            "silent one": "done",
            "hang on": "unknown",
        }
        rows = await has_rows(rig, 8)
    said = {row for row in rows if row.startswith("[Background")}
    assert said == {
        "[Background task “fine”]\ndone: fine",
        f"[Background task “break it”]\n{LOST}",
        f"[Background task “silent one”]\n{SAID_NOTHING}",
        f"[Background task “hang on”]\n{LOST}",
    }


async def over_or_running(pipe: Pipeline, state: str) -> list[str]:
    return [name for name, found in await tasks(pipe) if found == state]


async def test_a_task_whose_starter_died_is_begun_by_the_housekeeper_once(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failpoints.arm(tmp_path, "task.before_accept", failpoints.RAISE)
    monkeypatch.setattr("shared.tasks.starting.reach", failpoints.looking(str(tmp_path)))
    async with at_work(make_settings) as (rig, agent):
        with pytest.raises(failpoints.Injected):
            await start_task(rig.pipe, wanted("look"), ASKER)
        assert await tasks(rig.pipe) == [("look", "running")] and agent.turns == []
        await settled(rig.pipe)
        assert await over(rig.pipe) == [("look", "done")]
        again = await start_task(rig.pipe, wanted("look"), ASKER)  # as a control message that is tried again does
        assert again.state is TaskState.DONE and len(await has_rows(rig, 2)) == 2
    assert [turn.mail[0].kind for turn in agent.turns] == [Kind.TASK, Kind.RESULT]


async def test_tasks_are_bounded_in_number_and_depth(make_settings: MakeSettings) -> None:
    bounds = BackgroundSettings(at_once=2, depth=2)
    async with open_pipeline(make_settings(background=bounds)) as pipe:
        first = await start_task(pipe, wanted("one"), ASKER)
        second = await start_task(pipe, wanted("two"), replace(ASKER, session_key=str(first.key)))
        assert (second.depth, second.root_key, second.parent.chat) == (2, key_of(), first.id)
        assert second.asked_by == ASKER.source and second.asked_at == first.asked_at
        with pytest.raises(CannotDo, match="2 deep"):
            await start_task(pipe, wanted("three"), replace(ASKER, session_key=str(second.key)))
        with pytest.raises(CannotDo, match="running already"):
            await start_task(pipe, wanted("three"), ASKER)
        with pytest.raises(CannotDo, match="characters"):
            await start_task(pipe, wanted(" "), ASKER)
        assert (await start_task(pipe, wanted("one"), ASKER)).id == first.id
    async with open_pipeline(make_settings(background=BackgroundSettings(depth=0))) as pipe:
        rig = Rig(pipe)
        for text in ("/background look", "/btw"):
            await rig.accept(text)
        await rig.run_turns()
        texts = [part.text for part in await pipe.store.outbox.open_parts("to:webhook:c1", 10)]
    assert texts == ["Not done: there is no background work here.", "/btw needs a text: what am I to do?"]


async def test_tasks_that_follow_from_results_of_tasks_come_to_an_end(make_settings: MakeSettings) -> None:
    async with open_pipeline(
        make_settings(background=BackgroundSettings(at_once=100, in_a_row=3, goal_steps=3))
    ) as pipe:
        task = await start_task(pipe, wanted("0"), ASKER)
        for n in (1, 2, 3):
            await hand_over(pipe, task, "a result", "p1")
            task = await start_task(pipe, replace(wanted(str(n)), after=f"{task.id}:p1"), ASKER)
        with pytest.raises(CannotDo, match="3 tasks in a row"):
            await start_task(pipe, replace(wanted("4"), after=f"{task.id}:p1"), ASKER)
        with pytest.raises(CannotDo, match="3 tasks in a row"):
            await start_task(pipe, replace(wanted("4"), after="goal:4:x"), ASKER)
        inner = replace(ASKER, session_key=str(task.key))
        assert (await start_task(pipe, wanted("within"), inner)).in_a_row == 3
        await start_task(pipe, replace(wanted("4"), after="evt_9"), ASKER)  # somebody wrote


async def test_a_task_that_cannot_be_settled_holds_up_none_of_the_others(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, foreseen: Callable[[str], None]
) -> None:
    foreseen("housekeeper")
    monkeypatch.setattr("shared.tasks.starting.reach", failpoints.looking(str(tmp_path)))
    async with open_pipeline(make_settings()) as pipe:
        for name in ("bad", "good"):
            failpoints.arm(tmp_path, "task.before_accept", failpoints.RAISE)
            with pytest.raises(failpoints.Injected):
                await start_task(pipe, wanted(name), ASKER)
        await write(pipe.store, "UPDATE tasks SET created_at = created_at - 1, parent_key = 'none' WHERE name = 'bad'")
        await settled(pipe)
        begun = await ask(pipe.store, "SELECT payload FROM inbox")
    assert ["good" in row["payload"] for row in begun] == [True]


async def test_the_same_result_twice_is_mail_once(make_settings: MakeSettings) -> None:
    async with open_pipeline(make_settings()) as pipe:
        task = await start_task(pipe, wanted("one"), ASKER)
        first, second = [await hand_over(pipe, task, "it is 4", "out_1") for _ in range(2)]
        assert first == second
        rows = await ask(pipe.store, "SELECT id FROM inbox WHERE platform = 'webhook'")
    assert [row["id"] for row in rows] == [first]


async def test_a_question_in_the_background_is_the_result(make_settings: MakeSettings) -> None:
    async with at_work(make_settings) as (rig, _):
        await rig.accept("/bg ask something")
        [row] = await has_rows(rig, 1)
        assert await over(rig.pipe) == [("ask something", "done")]
        assert await ask(rig.pipe.store, "SELECT id FROM asks") == []
    assert NOBODY_BESIDE in row and "May I?" in row


async def test_a_command_in_a_result_is_only_text(make_settings: MakeSettings) -> None:
    async with at_work(make_settings) as (rig, agent):
        task = await start_task(rig.pipe, wanted("hang"), ASKER)
        text = "/new"
        await hand_over(rig.pipe, replace(task, name="x"), text, "out_1")
        await has_rows(rig, 2)
        agent.release.set()
    result = next(turn.mail[0] for turn in agent.turns if turn.mail[0].kind is Kind.RESULT)
    assert result.text.endswith(text) and result.source.user is None and result.asker == ASKER.source


async def test_what_follows_from_a_scheduled_turn_makes_no_schedules(make_settings: MakeSettings) -> None:
    call = a_call("schedule_add", '{"when": "every 1d at 09:00", "text": "news?"}')

    def answer(asked: Asked) -> str | dict[str, Any]:
        return calling(call) if asked.last == "plan" else f"read: {asked.last}"

    async with open_provider(answer=answer) as provider:
        settings = own_tools_config(provider)
        async with open_pipeline(make_settings(llm=settings, titles=False)) as pipe, working(pipe, LlmAgent(settings)):
            by = TaskAsker("agent:main:schedule:dm:sch_1", Source("schedule", "sch_1"), "webhook:u=u1")
            task = await start_task(pipe, wanted("plan"), by)
            rows = await has_rows(Rig(pipe), 4, str(task.key))
    assert rows[2] == "Not done: a scheduled turn may not make schedules."


async def test_a_model_starts_a_task_and_reads_its_result_in_a_turn_of_its_own(make_settings: MakeSettings) -> None:
    def answer(asked: Asked) -> str | dict[str, Any]:
        told = asked.last
        if told == "please":
            return calling(a_call("background_start", '{"text": "count the stars"}'))
        if told.startswith("Started: task_"):
            return "I am on it."
        return "about 4" if told == "count the stars" else f"I read: {told}"

    async with open_provider(answer=answer) as provider:
        settings = own_tools_config(provider).model_copy(update={"own_tools": ("background",)})
        async with open_pipeline(make_settings(llm=settings, titles=False)) as pipe, working(pipe, LlmAgent(settings)):
            rig = Rig(pipe)
            await rig.accept("please")
            rows = await has_rows(rig, 6)
            [task] = await over(pipe)
            [row] = await ask(pipe.store, "SELECT id FROM tasks")
            found = await pipe.store.tasks.find(row["id"])
            assert found is not None
            inside = await rig.transcript(str(found.key))
    result = "[Background task “count the stars”]\nabout 4"
    assert rows[3:] == ["I am on it.", result, f"I read: {result}"] and task == ("count the stars", "done")
    assert inside == ["count the stars", "about 4"] and _is_agents(found)
    notes = [
        text for asked in provider.requests for role, text in asked.messages if text.startswith("[Note of the system")
    ]
    assert any("nobody can answer a question" in note for note in notes)
    assert any("The user has not seen it" in note for note in notes)


def _is_agents(task: BackgroundTask) -> bool:
    return (task.kind, task.owner, task.depth) == (TaskKind.AGENT, "webhook:u=u1", 1)
