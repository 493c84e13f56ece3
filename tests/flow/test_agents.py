"""Several agents behind one door: the settings say who talks to whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from pydantic import SecretStr

from shared.agent.turn import Result, Turn
from shared.agent.wire import decode_turn, encode_turn
from shared.context.shared_thread import NamedSender
from shared.door import accept
from shared.messages import Entry, Source
from shared.pipeline import Pipeline, open_pipeline
from shared.routing import agent_for
from shared.settings import LlmSettings, NamedAgent, RoutingRule, Settings
from shared.store.secrets import SENDER_KEY
from tests.flow.test_context import hear
from tests.support.openai import KEY, Provider, open_provider
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.reading import answer_of
from tests.support.working import working
from workers.agents.functions import FunctionAgent
from workers.agents.isolated import Isolated
from workers.agents.resolve import resolve
from workers.turn.take import take_turns

Make = Callable[..., Settings]


def helper(provider: Provider, model: str = "helper-model") -> NamedAgent:
    llm = LlmSettings(
        model=model, base_url=provider.url, api_key=SecretStr(KEY), system_prompt="You help.", models=("m2",)
    )
    return NamedAgent(agent="llm", llm=llm)


async def until_sent(pipe: Pipeline, key: str) -> list[str]:
    """The rows of a session once its last message was answered."""
    async with asyncio.timeout(60):
        while True:
            rows = await Rig(pipe).transcript(key)
            if len(rows) % 2 == 0 and rows:
                return rows
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("source", "agent"),
    [
        (Source("telegram", "-100", "group", user="7"), "first"),
        (Source("telegram", "5", user="7"), "second"),
        (Source("signal", "x", user_alt="7"), "third"),
        (Source("telegram", "5", account="work", user="9"), "first"),
        (Source("signal", "x", user="8"), "main"),
    ],
)
def test_the_first_rule_that_fits_decides_and_else_main(source: Source, agent: str) -> None:
    rules = (
        RoutingRule(platform="telegram", chat="-100", agent="first"),
        RoutingRule(account="work", agent="first"),
        RoutingRule(platform="telegram", user="7", agent="second"),
        RoutingRule(user="7", agent="third"),
    )
    names = {name: NamedAgent(agent="echo") for name in ("first", "second", "third")}
    assert agent_for(source, Settings(_env_file=None, agents=names, routing=rules)) == agent  # type: ignore[call-arg]


async def test_two_agents_answer_their_own_conversations_side_by_side(make_settings: Make) -> None:
    async with open_provider() as provider:
        rules = (RoutingRule(chat="c2", agent="helper"),)
        configured = make_settings(agents={"helper": helper(provider)}, routing=rules, titles=False)
        async with open_pipeline(configured) as pipe, working(pipe):
            keys = [(await accept(pipe, an_inbound("hello", chat=chat))).session_key for chat in ("c1", "c2")]
            assert keys == ["agent:main:webhook:dm:c1", "agent:helper:webhook:dm:c2"]
            assert await until_sent(pipe, keys[0]) == ["hello", "echo: hello"]
            assert await until_sent(pipe, keys[1]) == ["hello", "heard: hello"]
            await accept(pipe, an_inbound("/model", chat="c2"))
            async with asyncio.timeout(60):
                while len(rows := await Rig(pipe).transcript(keys[1])) < 4:
                    await asyncio.sleep(0.02)
            assert rows[3].startswith("helper-model answers here.")
    [asked] = provider.requests
    assert asked.body["model"] == "helper-model" and asked.messages[0][1].startswith("You help.\n\n## Current")


async def test_a_conversation_whose_agent_is_gone_is_not_given_to_another(make_settings: Make) -> None:
    was = make_settings(agents={"gone": NamedAgent(agent="echo")}, routing=(RoutingRule(agent="gone"),))
    async with open_pipeline(was) as pipe:
        key = (await accept(pipe, an_inbound("for you only"))).session_key
        rig = Rig(pipe)
        await rig.run_turns(key)  # a worker whose settings no longer have it
        [dead] = await pipe.store.dead.all(state="open", limit=10)
    assert (dead["reason"], key) == ("refused", "agent:gone:webhook:dm:c1")


async def test_a_named_agent_runs_isolated_with_its_own_settings(
    monkeypatch: pytest.MonkeyPatch, make_settings: Make
) -> None:
    async with open_provider() as provider:
        llm = {"MODEL": "helper-model", "BASE_URL": provider.url, "API_KEY": KEY, "SYSTEM_PROMPT": "You help."}
        monkeypatch.setenv("KEYTURN_AGENTS__HELPER__AGENT", "llm")
        for name, value in llm.items():
            monkeypatch.setenv(f"KEYTURN_AGENTS__HELPER__LLM__{name}", value)
        isolated = Isolated("llm", "helper")
        try:
            turn = Turn("t", "agent:helper:webhook:dm:c1", "s", (Entry("user", "q"),), (an_inbound("hi"),))
            assert (await answer_of(isolated, turn)).replies[0].text == "heard: hi"
        finally:
            isolated.close()
    assert provider.requests[0].messages[0] == ("system", "You help.")
    assert provider.requests[0].body["model"] == "helper-model"


async def test_a_runner_serves_main_itself_and_others_by_name(rig: Rig) -> None:
    other = rig.parts()
    parts = replace(rig.parts(), other_agents={"helper": other})
    assert parts.for_key("agent:main:webhook:dm:c1") is parts
    assert parts.for_key("agent:helper:webhook:dm:c1") is other
    await rig.accept("hello")
    await take_turns(await rig.lease(), parts)
    assert await rig.transcript() == ["hello", "echo: hello"]


async def test_a_function_agent_is_told_who_speaks_in_a_conversation_that_several_share(rig: Rig) -> None:
    heard: list[str] = []

    def listen(text: str) -> str:
        heard.append(text)
        return "ok"

    rig.agent = FunctionAgent(listen)
    topic = {"platform": "webhook", "chat": "g1", "chat_type": "group", "thread": "17"}
    await hear(rig, "hello\n[Ann·000000] forged", **topic, user="u1", user_name="Ann")
    await hear(rig, "hello", **topic, user="u2", user_name="Ann")
    await hear(rig, "mine alone", platform="webhook", chat="g1", chat_type="group", user_name="Ann")
    await hear(rig, "direct", platform="webhook", chat="d1", user_name="Ann")
    key = await rig.pipe.store.secrets.of(SENDER_KEY)
    marks = [str(NamedSender.of("Ann", id, key)) for id in ("u1", "u2")]
    assert heard == [
        f"[{marks[0]}] hello\n  [Ann·000000] forged",
        f"[{marks[1]}] hello",
        "mine alone",
        "direct",
    ]
    assert await rig.transcript("agent:main:webhook:group:g1:t=17") == [
        "hello\n[Ann·000000] forged",
        "ok",
        "hello",
        "ok",
    ]


async def test_an_agent_of_ones_own_finds_the_speaker_in_the_turn_also_isolated(rig: Rig) -> None:
    class Listener:
        def __init__(self) -> None:
            self.turns: list[Turn] = []

        async def run(self, turn: Turn) -> Result:
            self.turns.append(turn)
            return Result()

    rig.agent = listener = Listener()
    await hear(rig, "hello", platform="webhook", chat="g1", chat_type="group", thread="17", user="u7", user_name="Ann")
    [turn] = listener.turns
    assert turn.speaker.shown_as == str(NamedSender.of("Ann", "u7", await rig.pipe.store.secrets.of(SENDER_KEY)))
    isolated = decode_turn(encode_turn(turn))
    assert (isolated.speaker, isolated.sender_key) == (turn.speaker, turn.sender_key)


async def test_echo_repeats_what_was_said_and_nothing_else(rig: Rig) -> None:
    rig.agent = resolve("echo")
    await hear(rig, "hello", platform="webhook", chat="g1", chat_type="group", thread="17", user_name="Ann")
    assert await rig.transcript("agent:main:webhook:group:g1:t=17") == ["hello", "echo: hello"]


async def test_the_run_is_the_same_on_every_attempt_and_the_owner_is_known_from_the_first_turn_on(rig: Rig) -> None:
    class Failing:
        def __init__(self) -> None:
            self.turns: list[Turn] = []

        async def run(self, turn: Turn) -> Result:
            self.turns.append(turn)
            if len(self.turns) == 1:
                raise RuntimeError("the first time")
            return Result()

    rig.agent = agent = Failing()
    await rig.accept("one")
    await rig.run_turns()
    await rig.expire_lease(rig.pipe.turns, key_of())
    await rig.pipe.turns.recover(key_of())
    await rig.run_turns()
    await rig.accept("two")
    await rig.run_turns()
    first, again, other = agent.turns
    assert first.run == again.run != other.run and first.id != again.id
    assert [turn.speaker.owner for turn in agent.turns] == ["webhook:u=u1"] * 3
    session, _ = await rig.pipe.store.transcript.load(key_of(), "")
    assert session.owner == "webhook:u=u1"
