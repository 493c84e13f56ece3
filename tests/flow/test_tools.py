"""Tools of the `llm` agent, against a local stand-in for a provider."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from keyturn import Began, CallContext, Done, Ended, Event, Row, Turn, tool
from shared.agent.steps import UnrecordedSteps
from shared.errors import ConfigurationError, Stopped
from shared.messages import Entry
from shared.pipeline import Pipeline
from shared.settings import LlmSettings
from shared.settings.agents import McpServer
from tests.support import toolbox
from tests.support.openai import KEY, MODEL, TOO_LONG, Asked, Provider, a_call, open_provider
from tests.support.pipe import Rig, an_inbound, key_of
from workers.agents.heard import INTERRUPTED, NOT_RUN
from workers.agents.llm import LlmAgent
from workers.agents.model.contract import TOO_LONG_NOTICE, TooLong
from workers.agents.model.conversation import CUT_RESULT, SHORT_RESULT
from workers.agents.reading import Reading
from workers.agents.tools.arguments import WrongArguments
from workers.agents.tools.loop import CUT, CUT_TWICE
from workers.process.parts import open_parts

SECONDS = 60
TOOLS = ("tests.support.toolbox",)


@pytest.fixture(autouse=True)
def forgotten() -> None:
    toolbox.forget()


def config(provider: Provider, **changes: Any) -> LlmSettings:
    values = {"model": MODEL, "base_url": provider.url, "api_key": SecretStr(KEY), "tools": TOOLS}
    return LlmSettings(**{**values, **changes})


def a_turn(text: str = "hello") -> Turn:
    return Turn("turn_1", key_of(), "ses_1", (), (an_inbound(text),), run="run_1", steps=UnrecordedSteps("run_1"))


def says(*answers: str | dict[str, Any]) -> Any:
    """Answers one after another, and then always the last."""
    coming = list(answers)

    def answer(_: Asked) -> str | dict[str, Any]:
        return coming.pop(0) if len(coming) > 1 else coming[0]

    return answer


def calling(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"content": None, "tool_calls": list(calls), **more}


async def events_of(provider: Provider, turn: Turn | None = None, **changes: Any) -> list[Event]:
    agent = LlmAgent(config(provider, **changes))
    async with asyncio.timeout(SECONDS):
        return [event async for event in agent.run(turn or a_turn())]


def rows_of(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.entry.role, event.entry.text) for event in events if isinstance(event, Row)]


async def test_the_model_is_told_of_a_tool_by_its_docstring_and_type_hints() -> None:
    async with open_provider() as provider:
        await events_of(provider)
    told = {tool["function"]["name"]: tool["function"] for tool in provider.requests[0].body["tools"]}
    assert list(told) == ["add", "slow", "send", "fail", "much", "hang"]
    assert told["add"]["description"] == "Add two numbers."
    assert told["add"]["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert list(told["send"]["parameters"]["properties"]) == ["to"]  # the context is ours to give


async def test_a_tool_runs_and_the_model_answers_with_its_result(rig: Rig) -> None:
    async with open_provider(answer=says(calling(a_call("add", '{"a": 2, "b": 3}')), "It is 5.")) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("2 and 3?")
        await rig.run_turns()
    assert await rig.transcript() == ["2 and 3?", "", "5", "It is 5."]
    assert toolbox.calls == [("add", (2, 3))] and toolbox.threads == ["agent"]
    asked = provider.requests[1].body["messages"]
    assert asked[-2]["tool_calls"] == [a_call("add", '{"a": 2, "b": 3}')]
    assert asked[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "5"}
    session, _ = await rig.pipe.store.transcript.load(key_of(), "")
    assert [row.data["usage"]["requests"] for row in session.history if row.role == "assistant"] == [1, 1]


async def test_the_next_turn_shows_the_model_its_calls_and_their_results(rig: Rig) -> None:
    async with open_provider(answer=says(calling(a_call("add", '{"a": 2}')), "3", "yes")) as provider:
        rig.agent = LlmAgent(config(provider))
        for text in ("2 and 1?", "sure?"):
            await rig.accept(text)
            await rig.run_turns()
    roles = [message["role"] for message in provider.requests[2].body["messages"]]
    assert roles[-5:] == ["user", "assistant", "tool", "assistant", "user"]


async def test_events_come_in_order_and_rows_in_the_order_of_the_calls() -> None:
    both = calling(a_call("slow", '{"n": 1}', "c1"), a_call("slow", '{"n": 2}', "c2"))
    async with open_provider(answer=says(both, "done")) as provider:
        events = await events_of(provider)  # the first call ends only when the second has: they run at once
    shown = [event for event in events if isinstance(event, Row | Began | Ended | Done)]
    kinds = [type(event).__name__ for event in shown]
    assert kinds == ["Row", "Began", "Began", "Ended", "Row", "Ended", "Row", "Row", "Done"]
    assert rows_of(events)[1:] == [("tool", "slow 1"), ("tool", "slow 2"), ("assistant", "done")]


async def test_calls_that_change_something_run_one_after_another() -> None:
    both = calling(a_call("send", '{"to": "a"}', "c1"), a_call("send", '{"to": "b"}', "c2"))
    async with open_provider(answer=says(both, "done")) as provider:
        events = await events_of(provider)
    kinds = [type(event).__name__ for event in events if isinstance(event, Began | Ended)]
    assert kinds == ["Began", "Ended", "Began", "Ended"] and toolbox.calls == [("send", "a"), ("send", "b")]


async def test_a_tool_is_given_the_same_idempotency_key_on_every_attempt_and_who_speaks() -> None:
    for _ in range(2):
        async with open_provider(answer=says(calling(a_call("send", '{"to": "a"}')), "done")) as provider:
            await events_of(provider, replace(a_turn(), speaker=replace(a_turn().speaker, owner="ann")))
    first, second = toolbox.contexts
    assert first.key == second.key and first.key.startswith("step_")
    assert first.speaker.owner == "ann" and first.session_key == key_of()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [('{"a": "many"}', "a: "), ("{}", "a: "), ('{"a": 1, "c": 2}', "c: "), ("[1]", "arguments: "), ("no json", "arg")],
)
async def test_arguments_that_do_not_fit_go_back_to_the_model_and_the_tool_does_not_run(
    arguments: str, complaint: str
) -> None:
    async with open_provider(answer=says(calling(a_call("add", arguments)), "sorry")) as provider:
        events = await events_of(provider)
    [ended] = [event for event in events if isinstance(event, Ended)]
    assert not ended.ok and ended.text.startswith("Not run: the arguments are wrong. " + complaint)
    assert toolbox.calls == [] and provider.requests[1].last == ended.text
    written = provider.requests[1].body["messages"][-2]["tool_calls"][0]["function"]["arguments"]
    assert isinstance(orjson.loads(written), dict)  # providers refuse anything else


async def test_a_tool_that_is_not_there_is_an_error_for_the_model() -> None:
    async with open_provider(answer=says(calling(a_call("fly")), "sorry")) as provider:
        await events_of(provider)
    assert provider.requests[1].last == "Not run: there is no tool 'fly'."


async def test_an_exception_of_a_tool_is_an_error_for_the_model() -> None:
    async with open_provider(answer=says(calling(a_call("fail", '{"reason": "no key"}')), "sorry")) as provider:
        events = await events_of(provider)
    [ended] = [event for event in events if isinstance(event, Ended)]
    assert not ended.ok and provider.requests[1].last == ended.text == "fail failed: LookupError: no key"


async def test_a_tool_that_takes_too_long_is_an_error_for_the_model() -> None:
    async with open_provider(answer=says(calling(a_call("hang")), "sorry")) as provider:
        await events_of(provider, tool_seconds=0.05)
    assert provider.requests[1].last == "hang failed: TimeoutError: it took longer than 0.05 s"


async def test_a_long_result_is_cut() -> None:
    async with open_provider(answer=says(calling(a_call("much")), "done")) as provider:
        await events_of(provider, tool_result_characters=100)
    result = provider.requests[1].last
    assert result.startswith("x" * 100 + "\n[Cut: ") and "100 of 5000" in result


async def test_ag40_a_result_that_makes_the_conversation_too_long_is_shown_short_once_and_kept_whole() -> None:
    async with open_provider(None, TOO_LONG, answer=says(calling(a_call("much")), "done")) as provider:
        events = await events_of(provider)
    _, whole, short = (asked.last for asked in provider.requests)
    assert whole == "x" * 5000 and short == "x" * SHORT_RESULT + CUT_RESULT
    assert rows_of(events)[1:] == [("tool", "x" * 5000), ("assistant", "done")]


async def test_ag40_a_conversation_that_is_too_long_with_short_results_ends_with_words_for_the_chat() -> None:
    async with open_provider(None, TOO_LONG, TOO_LONG, answer=says(calling(a_call("much")), "done")) as provider:
        with pytest.raises(TooLong) as caught:
            await events_of(provider)
    assert len(provider.requests) == 3 and caught.value.notice == TOO_LONG_NOTICE


@pytest.mark.parametrize(
    ("ids", "made"),
    [
        (("c", "c"), ["c", "c_1"]),
        (("c", "c_2", "c"), ["c", "c_2", "c_2_2"]),
        (("c", "c", "c_1"), ["c", "c_1", "c_1_2"]),
    ],
)
async def test_calls_with_one_id_are_told_apart(ids: tuple[str, ...], made: list[str]) -> None:
    calls = calling(*(a_call("add", f'{{"a": {n}}}', id) for n, id in enumerate(ids)))
    async with open_provider(answer=says(calls, "done")) as provider:
        result = await Reading(LlmAgent(config(provider)), a_turn()).result()
    assert [row.text for row in result.entries[1:-1]] == [str(n + 1) for n in range(len(ids))]
    sent = [message for message in provider.requests[1].body["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in sent] == made


def test_a_number_that_no_row_can_say_is_no_argument() -> None:
    @tool
    async def pay(amount: float = 1.0) -> str:
        """Pay."""
        return str(amount)

    assert pay.arguments('{"amount": 2}') == {"amount": 2.0}
    for written in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(WrongArguments, match="no JSON"):
            pay.arguments(f'{{"amount": {written}}}')


# -- limits


async def test_a_turn_that_asks_too_often_ends_with_a_plain_reason() -> None:
    async with open_provider(answer=says(calling(a_call("add", '{"a": 1}')))) as provider:
        events = await events_of(provider, max_requests=3)
    assert len(provider.requests) == 3
    role, text = rows_of(events)[-1]
    assert role == "assistant" and "more than 3 requests" in text
    assert isinstance(events[-1], Done) and events[-1].replies[0].text == text


async def test_a_turn_that_wants_too_many_tool_calls_ends_with_a_plain_reason_and_legal_rows() -> None:
    three = calling(*(a_call("add", '{"a": 1}', f"c{n}") for n in range(3)))
    async with open_provider(answer=says(three)) as provider:
        events = await events_of(provider, max_tool_calls=4)
    assert len(toolbox.calls) == 3
    roles = [role for role, _ in rows_of(events)]
    assert roles == ["assistant", *["tool"] * 3, "assistant", *["tool"] * 3, "assistant"]
    assert "more than 4 tool calls" in rows_of(events)[-1][1]


@pytest.mark.parametrize(
    ("limit", "words"), [({"max_turn_tokens": 1}, "1 are the limit"), ({"max_turn_seconds": 1e-9}, "longer than 1e-09")]
)
async def test_a_turn_that_uses_too_much_ends_with_a_plain_reason(limit: dict[str, Any], words: str) -> None:
    async with open_provider(answer=says(calling(a_call("add", '{"a": 1}')))) as provider:
        events = await events_of(provider, **limit)
    assert len(provider.requests) <= 1 and words in rows_of(events)[-1][1]


async def test_a_turn_that_costs_too_much_keeps_what_it_did_and_ends_with_a_plain_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workers.agents.openai_format.client.price", lambda *_: Decimal("0.30"))
    async with open_provider(answer=says(calling(a_call("add", '{"a": 1}')))) as provider:
        events = await events_of(provider, max_turn_cost=0.5)
    assert len(provider.requests) == 2 and len(toolbox.calls) == 2
    said = "I stopped: this cost 0.6000 US dollars, and 0.5 are the limit for one message."
    assert rows_of(events)[-1] == ("assistant", said)
    assert isinstance(events[-1], Done) and events[-1].replies[0].text == said


async def test_ag36_a_call_that_was_cut_by_the_length_limit_does_not_run_and_the_model_is_told() -> None:
    cut = calling(a_call("send", '{"to": "everybo'), finish_reason="length")
    async with open_provider(answer=says(cut, "shorter now")) as provider:
        events = await events_of(provider)
    assert toolbox.calls == [] and provider.requests[1].last == CUT
    assert rows_of(events)[-1] == ("assistant", "shorter now")


async def test_ag36_the_second_cut_ends_the_turn_with_a_plain_reason() -> None:
    cut = calling(a_call("send", '{"to": "everybody"}'), finish_reason="length")
    async with open_provider(answer=says(cut)) as provider:
        events = await events_of(provider)
    assert len(provider.requests) == 2 and toolbox.calls == []
    assert rows_of(events)[-1] == ("assistant", CUT_TWICE)


# -- stopped, and taken up again


async def test_ag21_a_turn_stopped_in_a_batch_keeps_what_ran_and_says_what_did_not() -> None:
    batch = calling(
        a_call("send", '{"to": "a"}', "c1"), a_call("hang", "{}", "c2"), a_call("send", '{"to": "b"}', "c3")
    )
    async with open_provider(answer=says(batch)) as provider:
        reading = Reading(LlmAgent(config(provider)), a_turn())
        task = asyncio.create_task(reading.result())
        async with asyncio.timeout(SECONDS):
            while ("hang", None) not in toolbox.calls:
                await asyncio.sleep(0.005)
            reading.stop()
            with pytest.raises(Stopped) as stopped:
                await task
    kept = stopped.value.kept
    assert kept is not None
    assert [row.text for row in kept.entries] == ["", "sent to a", INTERRUPTED, NOT_RUN]
    assert kept.entries[0].data["usage"]["total"] > 0


async def test_a_turn_that_is_taken_up_again_goes_on_from_its_rows() -> None:
    made = [{"id": id, "name": "add", "arguments": '{"a": 1}'} for id in ("c1", "c2")]
    rows = (
        Entry("assistant", "", data={"tool_calls": made}),
        Entry("tool", "2", data={"tool_call_id": "c1", "name": "add"}),
    )
    async with open_provider() as provider:
        events = await events_of(provider, replace(a_turn(), rows=rows))
    assert toolbox.calls == [("add", (1, 1))] and len(provider.requests) == 1
    assert [message["role"] for message in provider.requests[0].body["messages"]][-3:] == ["assistant", "tool", "tool"]
    assert [role for role, _ in rows_of(events)] == ["tool", "assistant"]


# -- what cannot be a tool


def nameless(a: int) -> int:
    return a


def untyped(a) -> int:  # type: ignore[no-untyped-def]
    """Has no type."""
    return int(a)


def many(*a: int) -> int:
    """Takes any number."""
    return sum(a)


@pytest.mark.parametrize(("function", "complaint"), [(nameless, "docstring"), (untyped, "type"), (many, "parameter")])
def test_a_function_that_cannot_be_a_tool_says_why(function: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        tool(function)


def test_a_tool_can_still_be_called_and_its_parameters_may_have_any_name() -> None:
    @tool
    def copy(schema: str, json: int, context: CallContext) -> str:
        """Use names that models have themselves."""
        return schema * json

    assert copy.arguments('{"schema": "a", "json": 2}') == {"schema": "a", "json": 2}
    assert copy(schema="a", json=2, context=None) == "aa"


@pytest.mark.parametrize(("module", "complaint"), [("no.such", "ModuleNotFoundError"), ("json", "no function with")])
def test_a_module_without_tools_is_said_at_the_start(module: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        LlmAgent(LlmSettings(model="m", base_url="http://127.0.0.1:1/v1", tools=(module,)))


@pytest.mark.parametrize(
    ("own_tools", "unknown"),
    [((), ["ad", "memory_add", "zzz*", "shopping"]), (("memory",), ["ad", "zzz*", "shopping"])],
)
async def test_a_name_to_be_approved_that_no_tool_has_is_said_when_the_worker_starts(
    pipe: Pipeline, own_tools: tuple[str, ...], unknown: list[str]
) -> None:
    about: dict[str, Any] = {"tools": TOOLS, "own_tools": own_tools, "mcp": {"shop": McpServer(line="true")}}
    approve = ("ad", "add", "a*", "memory_add", "shop__buy", "sh*", "zzz*", "shopping")
    with capture_logs() as lines:
        agent = LlmAgent(LlmSettings(model=MODEL, base_url="http://127.0.0.1:1/v1", approve=approve, **about))
        async with open_parts(pipe, agent, "w1"):
            pass
    assert [line["name"] for line in lines if line["event"] == "LLM__APPROVE names no tool"] == unknown
