"""Messages that a turn took in and acted on: neither a crash nor a question lets them be acted on twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from keyturn import Event, Row, Turn
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.flow.test_asking import last_told, say
from tests.flow.test_busy import durability, in_mode, until  # noqa: F401 (fixture)
from tests.flow.test_steering import Noting
from tests.flow.test_steps import Places, by_rows, config, kill_inside, killed, left_in_sql, next_worker
from tests.store.books import ask, write
from tests.support import counted
from tests.support.counted import World
from tests.support.openai import OUT_OF_QUOTA, Asked, Provider, a_call, open_provider
from tests.support.pipe import Rig, key_of
from workers.agents.llm import LlmAgent
from workers.turn import steps

FIRST = "the cake is a lie"


@pytest.fixture
def world() -> World:
    return counted.new_world()


def model(asked: Asked) -> str | dict[str, Any]:
    """Looks at the menu, and charges for the cake whenever it is the last thing that the user said."""
    last = asked.messages[-1]
    if last == ("user", "hold"):
        return {"content": None, "tool_calls": [a_call("look", '{"what":"menu"}', "c0")]}
    if last == ("user", "also cake"):
        return {"content": None, "tool_calls": [a_call("charge", '{"what":"cake"}', "c0")]}
    return "enjoy"


def steered(rig: Rig, monkeypatch: pytest.MonkeyPatch, provider: Provider, **changes: Any) -> None:
    """An agent whose first look at the menu lasts until the same user has said "also cake" in the same chat."""
    agent = rig.agent = Noting(config(provider, **changes))
    looked: list[str] = []

    async def look(what: str) -> str:
        turn = agent.turns[-1]
        if turn.session_key not in looked:
            looked.append(turn.session_key)
            await rig.accept("also cake", chat=turn.mail[0].source.chat)
            await until(turn.inbox.waiting)
        return f"saw {what}"

    monkeypatch.setattr(counted.look, "_function", look)


class AnswersFirst(Noting):
    """Has answered when the same user says "also cake" in the same chat."""

    rig: Rig

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        async for event in super().run(turn):
            if isinstance(event, Row) and event.entry.text == FIRST:
                await self.rig.accept("also cake", chat=turn.mail[0].source.chat)
                await until(turn.inbox.waiting)
            yield event


def answers_first(asked: Asked) -> str | dict[str, Any]:
    return FIRST if asked.messages[-1] == ("user", "hold") else model(asked)


async def told(rig: Rig, chat: str) -> list[str]:
    """What the chat is told, in order."""
    rows = await ask(rig.pipe.store, "SELECT DISTINCT destination FROM outbox")
    [destination] = [row["destination"] for row in rows if row["destination"].endswith(f":{chat}")]
    return [part.text for part in await rig.pipe.store.outbox.open_parts(destination, 1000)]


async def states(pipe: Pipeline, key: str = key_of()) -> list[str]:
    rows = await ask(pipe.store, "SELECT state FROM inbox WHERE session_key = :key ORDER BY seq", key=key)
    return [row["state"] for row in rows]


async def test_ag11_a_message_that_a_turn_took_in_is_acted_on_once_wherever_its_worker_dies(
    make_settings: Callable[..., Settings],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    durability: str,  # noqa: F811
) -> None:
    settings = make_settings(**in_mode("steer", durability=durability, heartbeat_seconds=0.1))
    async with open_provider(answer=model) as provider, open_pipeline(settings) as pipe:
        rig, whole = Rig(pipe), Places()
        steered(rig, monkeypatch, provider)
        monkeypatch.setattr(steps, "reach", whole.reach)
        await rig.accept("hold", chat="whole")
        await rig.run_turns(key_of("whole"))
        kept = ["hold", "", "saw menu", "also cake", "", "charged cake", "enjoy"]
        assert await rig.transcript(key_of("whole")) == kept
        for at, point in enumerate(whole.reached):
            world = counted.new_world()
            chat, key = f"at{at}", key_of(f"at{at}")
            monkeypatch.setattr(steps, "reach", Places(at).reach)
            await rig.accept("hold", chat=chat)
            await killed(rig, key)
            monkeypatch.setattr(steps, "reach", Places().reach)
            await next_worker(rig, key)
            assert await states(pipe, key) == ["answered", "merged"], (at, point)
            found = await rig.transcript(key)
            assert [found[n] for n in (0, 1, 3, 4, 6)] == [kept[n] for n in (0, 1, 3, 4, 6)], (at, point)
            assert len(found) == len(kept) and len(world.charged) <= 1, (at, point)
            assert (found[5], world.charged) == (kept[5], ["cake"]) or "may have happened" in found[5], (at, point)
        assert await left_in_sql(rig) == 0


async def test_a_message_that_led_to_a_question_ends_with_the_turn_that_asked(
    make_settings: Callable[..., Settings], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(**in_mode("steer", heartbeat_seconds=0.1))
    async with open_provider(answer=model) as provider, open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        steered(rig, monkeypatch, provider, approve=("charge",))
        await say(rig, "hold")
        question = await last_told(rig)
        assert "cake" in question
        assert await states(pipe) == ["answered", "merged"]
        assert await rig.transcript() == ["hold", "also cake", question]
        shown = len(provider.requests)
        assert await say(rig, "/approve") == "enjoy"
        # The model reads it once: it is in the history now.
        assert [text for _, text in provider.requests[-1].messages].count("also cake") == 1
        assert len(provider.requests) == shown + 1 and world.charged == ["cake"]
        assert await rig.transcript() == [
            "hold", "also cake", question, "/approve", "", "saw menu", "", "charged cake", "enjoy",
        ]  # fmt: skip
        assert await left_in_sql(rig) == 0


async def test_a_message_that_a_turn_took_in_and_that_was_dropped_after_a_crash_is_not_merged(
    make_settings: Callable[..., Settings], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the model was shown stays shown; the turn does not end what has ended."""
    settings = make_settings(**in_mode("steer", heartbeat_seconds=0.1))
    async with open_provider(answer=model) as provider, open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        steered(rig, monkeypatch, provider)
        monkeypatch.setattr(steps, "reach", Places(at=5).reach)
        await rig.accept("hold")
        await killed(rig)
        monkeypatch.setattr(steps, "reach", Places().reach)
        await write(pipe.store, "UPDATE inbox SET state = 'superseded' WHERE seq = 2")
        await next_worker(rig)
        assert await states(pipe) == ["answered", "superseded"]
        assert (await rig.transcript())[:4] == ["hold", "", "saw menu", "also cake"]


async def test_of_a_call_that_had_begun_nobody_says_that_it_was_not_run_because_a_message_came_in(
    make_settings: Callable[..., Settings], world: World
) -> None:
    """The message came after the worker had died inside the call, so the next attempt finds both."""
    settings = make_settings(**in_mode("steer", heartbeat_seconds=0.1))
    async with open_provider(answer=by_rows(((("charge", "tea"),),))) as provider, open_pipeline(settings) as pipe:
        rig = Rig(pipe, LlmAgent(config(provider)))
        await rig.accept("tea")
        kill_inside(world, "tea")
        await killed(rig)
        await rig.accept("no, coffee")
        await next_worker(rig)
        assert (await rig.transcript())[2].startswith("charge may have happened")
        assert await states(pipe) == ["answered", "merged"] and world.charged == ["tea"]


async def test_calls_that_a_message_left_out_are_told_wherever_the_worker_dies_after_it(
    make_settings: Callable[..., Settings], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two_at_once(asked: Asked) -> str | dict[str, Any]:
        found = model(asked)
        if asked.messages[-1] == ("user", "hold"):
            assert isinstance(found, dict)
            found["tool_calls"].append(a_call("charge", '{"what":"tea"}', "c1"))
        return found

    settings = make_settings(**in_mode("steer", heartbeat_seconds=0.1))
    async with open_provider(answer=two_at_once) as provider, open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        steered(rig, monkeypatch, provider)
        await rig.accept("hold")
        kill_inside(world, "cake")
        await killed(rig)
        await next_worker(rig)
        assert await states(pipe) == ["answered", "merged"] and world.charged == ["cake"]
        found = await rig.transcript()
        assert found[:3] == ["hold", "", "saw menu"] and found[3].startswith("Not run:") and found[4] == "also cake"
        shown = [text for role, text in provider.requests[-1].messages if role == "tool"]
        assert shown[:2] == ["saw menu", found[3]] and shown[2].startswith("charge may have happened")


async def test_an_answer_that_was_finished_before_a_message_came_in_is_said_wherever_its_worker_dies(
    make_settings: Callable[..., Settings], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(**in_mode("steer", heartbeat_seconds=0.1))
    async with open_provider(answer=answers_first) as provider, open_pipeline(settings) as pipe:
        rig, whole = Rig(pipe), Places()
        agent = rig.agent = AnswersFirst(config(provider))
        agent.rig = rig
        monkeypatch.setattr(steps, "reach", whole.reach)
        await rig.accept("hold", chat="whole")
        await rig.run_turns(key_of("whole"))
        kept = ["hold", FIRST, "also cake", "", "charged cake", "enjoy"]
        assert await rig.transcript(key_of("whole")) == kept and await told(rig, "whole") == [FIRST, "enjoy"]
        for at, point in enumerate(whole.reached):
            world = counted.new_world()
            chat, key = f"at{at}", key_of(f"at{at}")
            monkeypatch.setattr(steps, "reach", Places(at).reach)
            await rig.accept("hold", chat=chat)
            await killed(rig, key)
            monkeypatch.setattr(steps, "reach", Places().reach)
            await next_worker(rig, key)
            found = await rig.transcript(key)
            if at:  # killed before anything was written down, it begins anew, and says what it says then
                assert [*found[:4], found[5]] == [*kept[:4], kept[5]], (at, point)
                assert await states(pipe, key) == ["answered", "merged"], (at, point)
                assert await told(rig, chat) == [FIRST, "enjoy"], (at, point)
            assert len(world.charged) <= 1, (at, point)
        assert await left_in_sql(rig) == 0


async def test_an_answer_that_was_finished_is_said_though_the_message_behind_it_was_dropped_after_a_crash(
    make_settings: Callable[..., Settings], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(**in_mode("steer", heartbeat_seconds=0.1))
    async with open_provider(answer=answers_first) as provider, open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        agent = rig.agent = AnswersFirst(config(provider))
        agent.rig = rig
        monkeypatch.setattr(steps, "reach", Places(at=1).reach)
        await rig.accept("hold")
        await killed(rig)
        monkeypatch.setattr(steps, "reach", Places().reach)
        await write(pipe.store, "UPDATE inbox SET state = 'superseded' WHERE seq = 2")
        asked = len(provider.requests)
        await next_worker(rig)
        assert await rig.transcript() == ["hold", FIRST] and len(provider.requests) == asked
        assert await told(rig, "c1") == [FIRST]
        assert await left_in_sql(rig) == 0


async def test_an_answer_that_was_finished_is_said_before_a_question_and_once(
    make_settings: Callable[..., Settings], world: World
) -> None:
    settings = make_settings(**in_mode("steer", heartbeat_seconds=0.1))
    async with open_provider(answer=answers_first) as provider, open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        agent = rig.agent = AnswersFirst(config(provider, approve=("charge",)))
        agent.rig = rig
        await say(rig, "hold")
        [first, question] = await told(rig, "c1")
        assert first == FIRST and await rig.transcript() == ["hold", FIRST, "also cake", question]
        assert await say(rig, "/approve") == "enjoy" and world.charged == ["cake"]
        assert await told(rig, "c1") == [FIRST, question, "enjoy"]
        assert (await rig.transcript())[4:] == ["/approve", "", "charged cake", "enjoy"]
        assert [text for _, text in provider.requests[-1].messages].count(FIRST) == 1
        assert await left_in_sql(rig) == 0


async def test_an_answer_that_was_finished_is_said_and_kept_though_the_turn_becomes_a_dead_letter(
    make_settings: Callable[..., Settings], world: World
) -> None:
    settings = make_settings(**in_mode("steer", heartbeat_seconds=0.1))
    async with open_provider(None, OUT_OF_QUOTA, answer=answers_first) as provider, open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        agent = rig.agent = AnswersFirst(config(provider))
        agent.rig = rig
        await rig.accept("hold")
        await rig.run_turns()
        assert (await states(pipe))[0] == "dead"
        said, notice = (await told(rig, "c1"))[:2]
        assert said == FIRST and notice not in (FIRST, "enjoy")
        assert (await rig.transcript())[:2] == ["hold", FIRST]
        assert await left_in_sql(rig) == 0


async def test_mail_that_was_taken_in_is_answered_once_though_the_turn_that_had_answered_it_becomes_a_dead_letter(
    make_settings: Callable[..., Settings], world: World
) -> None:
    second, more = "here is the cake", {FIRST: "also cake", "here is the cake": "and tea"}

    class AnswersTwice(AnswersFirst):
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            async for event in LlmAgent.run(self, turn):
                if isinstance(event, Row) and (said := more.pop(event.entry.text, "")):
                    await self.rig.accept(said, chat=turn.mail[0].source.chat)
                    await until(turn.inbox.waiting)
                yield event

    def answer(asked: Asked) -> str | dict[str, Any]:
        return {"hold": FIRST, "also cake": second, "and tea": "tea, too"}[asked.messages[-1][1]]

    settings = make_settings(**in_mode("steer", heartbeat_seconds=0.1))
    troubles = (None, None, OUT_OF_QUOTA)
    async with open_provider(*troubles, answer=answer) as provider, open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        agent = rig.agent = AnswersTwice(config(provider))
        agent.rig = rig
        await rig.accept("hold")
        await rig.run_turns()
        assert (await states(pipe))[0] == "dead"
        found = await told(rig, "c1")
        assert found[0] == FIRST and second not in found[:2], found
        assert found.count(second) <= 1 and found.count("tea, too") == 1, found
        assert (await rig.transcript())[:3] == ["hold", FIRST, "also cake"]
        assert await left_in_sql(rig) == 0
