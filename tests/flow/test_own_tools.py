"""Keyturn's own tools: a model makes schedules and sends to chats, with the rights of who speaks and no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any

import orjson
import pytest
from pydantic import SecretStr, ValidationError

from shared.agent.turn import Speaker
from shared.door import accept
from shared.errors import CannotDo, NotFound
from shared.messages import Terms
from shared.operating.schedules import Maker, WantedSchedule, add_schedule, remove_schedule, run_schedule
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.schedules import listed_schedules
from shared.settings import LlmSettings, ScheduleSettings, Settings
from tests.flow.test_steps import killed
from tests.store.books import ask
from tests.support.counted import Killed
from tests.support.openai import KEY, MODEL, Asked, Provider, a_call, open_provider
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.working import working
from workers.agents import isolated, remote_tools
from workers.agents.isolated import Isolated
from workers.agents.llm import LlmAgent
from workers.agents.tools.tool import CallContext
from workers.side import own_tools as own
from workers.side.own_tools import NOT_READ, own_tools
from workers.turn.take import take_turns

MakeSettings = Callable[..., Settings]
WAIT_SECONDS = 120
ADD = a_call("schedule_add", orjson.dumps({"when": "every 1d at 09:00", "text": "any news?", "name": "news"}).decode())


def config(provider: Provider) -> LlmSettings:
    return LlmSettings(model=MODEL, base_url=provider.url, api_key=SecretStr(KEY), own_tools=("schedule", "send"))


def says(*answers: str | dict[str, Any]) -> Any:
    coming = list(answers)

    def answer(_: Asked) -> str | dict[str, Any]:
        return coming.pop(0) if len(coming) > 1 else coming[0]

    return answer


def calling(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"content": None, "tool_calls": list(calls)}


async def until(true: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await true():
            await asyncio.sleep(0.05)


async def asked(
    pipe: Pipeline, provider: Provider, text: str = "please", chat: str = "c1", agent: LlmSettings | None = None
) -> list[str]:
    """The rows of the chat after the agent has answered."""
    rig = Rig(pipe)
    async with working(pipe, LlmAgent(agent or config(provider))):
        await rig.accept(text, chat=chat)

        async def answered() -> bool:
            return "done" in await rig.transcript(key_of(chat))

        await until(answered)
    return await rig.transcript(key_of(chat))


async def test_a_model_schedules_and_sends_with_the_rights_of_who_speaks(make_settings: MakeSettings) -> None:
    send = a_call("send_message", '{"target": "webhook:c2", "text": "hello from c1"}', "call_2")
    async with open_provider(answer=says(calling(ADD, send), "done")) as provider:
        async with open_pipeline(make_settings(llm=config(provider), titles=False)) as pipe:
            rows = await asked(pipe, provider)
            [schedule] = await listed_schedules(pipe.store, 10)
            assert "0 9 * * *" in rows[2] and schedule.id in rows[2] and "next 20" in rows[2]
            assert rows[3] == "Not done: only an admin may send to other chats."
            assert (schedule.name, schedule.to, schedule.owner) == ("news", ("origin",), "webhook:u=u1")
        admin = make_settings(llm=config(provider), admin_users=("webhook:u1",), titles=False)
    async with open_provider(answer=says(calling(send), "done")) as provider, open_pipeline(admin) as pipe:
        rows = await asked(pipe, provider, chat="c3")
        assert rows[2] == "accepted"
        assert await Rig(pipe).transcript(key_of("c2")) in ([], ["hello from c1"])
        assert len(await ask(pipe.store, "SELECT id FROM inbox WHERE session_key = 'agent:main:webhook:dm:c2'")) == 1


async def test_a_request_without_a_conversation_leaves_nothing_to_come_back_to_it(make_settings: MakeSettings) -> None:
    start = a_call("background_start", '{"text": "count the stars"}', "call_2")
    async with open_provider(answer=says(calling(ADD, start), "done")) as provider:
        settings = config(provider).model_copy(update={"own_tools": ("schedule", "background")})
        async with open_pipeline(make_settings(llm=settings, titles=False)) as pipe:
            said = an_inbound("please", platform="api")
            said = replace(said, source=replace(said.source, chat=said.id), terms=Terms(history=()))
            async with working(pipe, LlmAgent(settings)):
                await accept(pipe, said)

                async def answered() -> bool:
                    return len(provider.requests) > 1

                await until(answered)
            found = await ask(pipe.store, "SELECT id FROM tasks UNION SELECT id FROM schedules")
    told = [message["content"] for message in provider.requests[-1].body["messages"] if message["role"] == "tool"]
    assert told == [NOT_READ, NOT_READ] and found == []


async def test_a_schedule_made_in_a_chat_answers_in_that_chat(make_settings: MakeSettings) -> None:
    answers = says(calling(ADD), "done", "here are the news")
    async with (
        open_provider(answer=answers) as provider,
        open_pipeline(make_settings(llm=config(provider), titles=False)) as pipe,
    ):
        await asked(pipe, provider)
        [schedule] = await listed_schedules(pipe.store, 10)
        async with working(pipe, LlmAgent(config(provider))):
            await run_schedule(pipe, schedule.id)

            async def told() -> bool:
                return (await Rig(pipe).transcript())[-1:] == ["here are the news"]

            await until(told)
    system = provider.requests[-1].body["messages"][0]["content"]
    assert "schedule_add" in system and "[SILENT]" in orjson.dumps(provider.requests[-1].body).decode()


async def test_a_person_lists_and_removes_their_own_schedules_only(make_settings: MakeSettings) -> None:
    async with open_provider() as provider, open_pipeline(make_settings(llm=config(provider), titles=False)) as pipe:
        mine = await add_schedule(pipe, WantedSchedule("every 1h", "mine"), Maker("webhook:u=u1", an_inbound().source))
        other = await add_schedule(pipe, WantedSchedule("every 1h", "other", ("local",)))
        remove = [a_call("schedule_remove", orjson.dumps({"id": one.id}).decode(), one.id) for one in (mine, other)]
        provider._answer = says(calling(a_call("schedule_list", "{}")), calling(*remove), "done")
        rows = await asked(pipe, provider)
        assert mine.id in rows[2] and other.id not in rows[2]
        assert rows[4] == "Removed." and rows[5].startswith("Not done: there is no schedule")
        assert [one.id for one in await listed_schedules(pipe.store, 10)] == [other.id]


async def test_who_speaks_without_a_name_sees_and_removes_no_schedule_of_the_operators(
    make_settings: MakeSettings,
) -> None:
    async with open_provider() as provider, open_pipeline(make_settings(llm=config(provider), titles=False)) as pipe:
        ours = await add_schedule(pipe, WantedSchedule("every 1h", "ours", ("local",)))
        source = replace(an_inbound().source, user=None)
        nobody = Maker("", source)
        with pytest.raises(NotFound):
            await remove_schedule(pipe.store, ours.id, nobody)
        with pytest.raises(CannotDo, match="who speaks"):
            await add_schedule(pipe, WantedSchedule("every 1h", "mine"), nobody)
        context = CallContext("key", Speaker(""), key_of(), "run_1", source)
        tools = {tool.name: tool for tool in own_tools(pipe, ("schedule",))}
        assert await tools["schedule_list"].run({}, context) == "There are none."
        assert [one.id for one in await listed_schedules(pipe.store, 10)] == [ours.id]


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_scheduled_turn_makes_no_schedules_unless_the_settings_allow_it(
    make_settings: MakeSettings, allowed: bool
) -> None:
    bounds = ScheduleSettings(by_schedules=allowed)
    async with (
        open_provider(answer=says(calling(ADD), "done")) as provider,
        open_pipeline(make_settings(llm=config(provider), schedule=bounds, titles=False)) as pipe,
    ):
        by = Maker("webhook:u=u1", an_inbound().source)
        made = await add_schedule(pipe, WantedSchedule("every 1h", "go"), by)
        async with working(pipe, LlmAgent(config(provider))):
            begun = await run_schedule(pipe, made.id)

            async def answered() -> bool:
                return "done" in await Rig(pipe).transcript(begun.session_key)

            await until(answered)
        assert len(await listed_schedules(pipe.store, 10)) == (2 if allowed else 1)


async def test_the_same_call_made_again_makes_one_schedule(rig: Rig) -> None:
    by = Maker("webhook:u=u1", an_inbound().source)
    made = [await add_schedule(rig.pipe, WantedSchedule("every 1h", "x"), by, key="step_1") for _ in range(2)]
    assert made[0].id == made[1].id and len(await listed_schedules(rig.pipe.store, 10)) == 1


def test_a_tool_that_is_not_there_is_refused_at_start() -> None:
    with pytest.raises(ValidationError, match="none of schedule, send"):
        LlmSettings(own_tools=("fly",))


class Dies:
    """Kills the worker at a failpoint, once."""

    def __init__(self, point: str) -> None:
        self._point: str | None = point

    def reach(self, point: str) -> None:
        if point == self._point:
            self._point = None
            raise Killed


async def test_ag13_a_tool_of_our_own_whose_worker_died_inside_it_is_called_again_with_the_same_key(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt after a worker's death runs in a process of its own, as in a real worker."""
    added: Any = add_schedule

    async def adding(*about: Any, key: str) -> Any:
        keys.append(key)
        made = await added(*about, key=key)
        if len(keys) == 1:
            raise Killed
        return made

    keys: list[str] = []
    monkeypatch.setattr(own, "add_schedule", adding)
    async with (
        isolated_llm(monkeypatch, says(calling(ADD), "done")) as provider,
        open_pipeline(make_settings(llm=config(provider), agent="llm", titles=False)) as pipe,
    ):
        agent = LlmAgent(config(provider))
        agent.take_tools(own.own_tools(pipe, agent.own_tools))
        rig = Rig(pipe, agent)
        await rig.accept("please")
        await killed(rig)
        await next_attempt(rig, provider)
        [schedule] = await listed_schedules(pipe.store, 10)
        rows = await rig.transcript()
    assert len(keys) == 2 and len(set(keys)) == 1
    assert schedule.id in rows[2] and rows[-1] == "done"
    offered = [[tool["function"]["name"] for tool in request.body["tools"]] for request in provider.requests]
    assert offered[0] == offered[-1]  # the model is told of the same tools, so its provider knows the prompt again


@pytest.mark.parametrize("point", ["isolated.before_tool", "isolated.after_tool"])
async def test_a_worker_that_dies_while_it_runs_a_tool_for_an_isolated_turn_leaves_one_schedule(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    async with (
        isolated_llm(monkeypatch, says(calling(ADD), "done")) as provider,
        open_pipeline(make_settings(llm=config(provider), agent="llm", titles=False)) as pipe,
    ):
        rig = Rig(pipe)
        await rig.accept("please")
        await rig.lease()  # a worker begins the first attempt, and dies with it
        agent = Isolated("llm")
        agent.take_tools(own.own_tools(pipe, ("schedule",)))
        monkeypatch.setattr(remote_tools, "reach", Dies(point).reach)
        try:
            for is_killed in (True, False):
                await rig.expire_lease(pipe.turns, key_of())
                await pipe.turns.recover(key_of())
                turns = take_turns(await rig.lease(), replace(rig.parts(), isolated_agent=agent))
                with pytest.raises(Killed) if is_killed else nullcontext():
                    await turns
        finally:
            agent.close()
        assert len(await listed_schedules(pipe.store, 10)) == 1
        assert (await rig.transcript())[-1] == "done"


async def test_an_isolated_turn_is_told_what_is_wrong_with_a_call_of_our_own_tools(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(*about: Any, **more: Any) -> Any:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(own, "add_schedule", breaks)
    wrong = a_call("schedule_add", '{"when": 5}', "call_2")
    async with (
        isolated_llm(monkeypatch, says(calling(ADD, wrong), "done")) as provider,
        open_pipeline(make_settings(llm=config(provider), agent="llm", titles=False)) as pipe,
    ):
        rig = Rig(pipe)
        await rig.accept("please")
        await rig.lease()  # a worker begins the first attempt, and dies with it
        await next_attempt(rig, provider)
        rows = await rig.transcript()
    assert rows[2] == "schedule_add failed: ZeroDivisionError: by nothing"
    assert rows[3].startswith("Not run: the arguments are wrong.")


@asynccontextmanager
async def isolated_llm(monkeypatch: pytest.MonkeyPatch, answer: Any) -> AsyncIterator[Provider]:
    """A provider, and an environment in which isolated processes find it."""
    async with open_provider(answer=answer) as provider:
        named = {"MODEL": MODEL, "BASE_URL": provider.url, "API_KEY": KEY, "OWN_TOOLS": "schedule,send"}
        for name, value in named.items():
            monkeypatch.setenv(f"KEYTURN_LLM__{name}", value)
        monkeypatch.setenv("KEYTURN_AGENT", "llm")
        monkeypatch.setattr(isolated, "START_SECONDS", 600.0)
        yield provider


async def next_attempt(rig: Rig, provider: Provider) -> None:
    """The dead worker's lease has run out, and a real worker takes the key."""
    await rig.expire_lease(rig.pipe.turns, key_of())
    await rig.pipe.turns.recover(key_of())
    async with working(rig.pipe, LlmAgent(config(provider))):

        async def answered() -> bool:
            return (await rig.transcript())[-1:] == ["done"]

        await until(answered)
