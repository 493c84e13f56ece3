"""Fallback models: which model answers while the first one cannot, and what becomes of what was said and done before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from keyturn import Delta, Done, Event, Restarted, Row, Spent
from shared.agent.steps import UnrecordedSteps
from shared.errors import ConfigurationError, HeldBack, Outage, Stopped, Transient
from shared.messages import Entry
from shared.pipeline import open_pipeline
from shared.settings import LlmSettings, Settings, load
from tests.flow.test_llm import a_turn, config
from tests.flow.test_never_stuck import ended
from tests.flow.test_tools import TOOLS, calling, says
from tests.support import openai, toolbox
from tests.support.openai import KEY, Provider, Trouble, a_call, open_provider
from tests.support.pipe import Rig, key_of
from tests.support.reading import answer_of
from tests.support.working import working
from workers.agents.isolated import Isolated
from workers.agents.llm import LlmAgent
from workers.agents.model.contract import ModelRefused, QuotaUsedUp, TooLong
from workers.agents.model.fallback import REST_SECONDS
from workers.agents.reading import Reading
from workers.turn.open import load_session

OTHER = "other-model"
SOON = Trouble(429, "rate_limit_exceeded", headers={"retry-after-ms": "20"})
BAD_KEY = Trouble(401, "invalid_api_key", "invalid_request_error")
FILTERED = Trouble(400, "content_filter", "invalid_request_error")
HALF = b'data: {"choices":[{"index":0,"delta":{"content":"The first half of "},"finish_reason":null}]}\n\n'
CUT_IN_THE_MIDDLE = Trouble(None, sent=HALF, cut_body=True)
WITHOUT_AN_END = Trouble(200, sent=HALF)


def other(provider: Provider, **changes: Any) -> dict[str, Any]:
    return {"model": OTHER, "base_url": provider.url, "api_key": SecretStr(KEY), **changes}


def with_fallback(first: Provider, second: Provider, **changes: Any) -> LlmSettings:
    return config(first, **{"fallbacks": {1: other(second)}, **changes})


def a_turn_with_steps() -> Any:
    return replace(a_turn(), run="run_1", steps=UnrecordedSteps("run_1"))


async def events_of(agent: LlmAgent, turn: Any) -> list[Event]:
    return [event async for event in agent.run(turn)]


@pytest.mark.parametrize(
    "trouble",
    [openai.BROKEN, openai.CUT, openai.BUSY, openai.RATE_LIMITED, openai.OUT_OF_QUOTA, BAD_KEY, openai.NO_SUCH_MODEL],
    ids=["500", "cut", "503", "429", "quota", "key", "model"],
)
async def test_the_next_model_answers_while_the_first_can_answer_nobody(trouble: Trouble) -> None:
    async with open_provider(trouble) as first, open_provider() as second:
        with capture_logs() as lines:
            result = await answer_of(LlmAgent(with_fallback(first, second)), a_turn())
    assert [row.text for row in result.entries] == ["heard: hello"]
    assert result.entries[0].data["usage"]["model"] == OTHER
    assert result.spent == ()
    assert (len(first.requests), len(second.requests)) == (1, 1)
    assert second.requests[0].body["model"] == OTHER
    [line] = [line for line in lines if line["event"] == "model cannot answer, another is asked"]
    assert (line["provider"], line["model"], line["next_model"]) == ("openai-compatible", openai.MODEL, OTHER)
    if trouble.status in (500, 503) or trouble is openai.RATE_LIMITED:
        assert line["status"] == trouble.status
    assert line["key"] == key_of() and KEY not in str(lines)


async def test_a_provider_that_is_not_there_or_says_nothing_in_time_has_its_turns_answered_by_the_next() -> None:
    async with open_provider() as gone, open_provider() as second:
        pass
    async with open_provider() as first, open_provider() as second:
        away = config(gone, fallbacks={1: other(second)})
        assert (await answer_of(LlmAgent(away), a_turn())).entries[0].text == "heard: hello"
        first.gate = asyncio.Event()
        silent = with_fallback(first, second, timeout_seconds=0.2)
        assert (await answer_of(LlmAgent(silent), a_turn())).entries[0].text == "heard: hello"


async def test_fallbacks_are_asked_in_the_order_of_their_numbers_each_with_its_own_key_and_address() -> None:
    async with (
        open_provider(openai.BROKEN) as first,
        open_provider(openai.BROKEN) as second,
        open_provider() as third,
    ):
        fallbacks = {10: other(third, model="third"), 9: other(second)}
        result = await answer_of(LlmAgent(config(first, fallbacks=fallbacks)), a_turn())
        assert result.entries[0].data["usage"]["model"] == "third"
        assert [len(provider.requests) for provider in (first, second, third)] == [1, 1, 1]


async def test_a_fallback_gets_neither_the_key_nor_the_address_of_the_first_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with open_provider(openai.BROKEN) as first, open_provider() as second:
        agent = LlmAgent(config(first, fallbacks={1: other(second, api_key=None)}))
        with pytest.raises(Outage):  # it is asked without a key, and refuses: the message waits for the first
            await answer_of(agent, a_turn())
        assert [asked.key for asked in second.requests] == ["none"]
        with pytest.raises(ConfigurationError, match="LLM__FALLBACKS__1__MODEL=openai:gpt-5") as refused:
            LlmAgent(config(first, fallbacks={1: {"model": "openai:gpt-5"}}))
        assert KEY not in str(refused.value)


@pytest.mark.parametrize("trouble", [openai.MALFORMED, FILTERED], ids=["malformed", "filtered"])
async def test_what_a_model_refused_because_of_what_was_asked_is_put_to_no_other(trouble: Trouble) -> None:
    async with open_provider(trouble) as first, open_provider() as second:
        with pytest.raises(ModelRefused):
            await answer_of(LlmAgent(with_fallback(first, second)), a_turn())
        assert (len(first.requests), len(second.requests)) == (1, 0)
    async with open_provider(openai.BROKEN) as first, open_provider(trouble) as second, open_provider() as third:
        line = config(first, fallbacks={1: other(second), 2: other(third)})
        with pytest.raises(ModelRefused):
            await answer_of(LlmAgent(line), a_turn())
        assert third.requests == []


async def test_a_short_pause_is_waited_for_once_and_then_the_next_model_answers() -> None:
    async with open_provider(SOON, None, SOON, SOON) as first, open_provider() as second:
        agent = LlmAgent(with_fallback(first, second))
        assert (await answer_of(agent, a_turn())).entries[0].data["usage"]["model"] == openai.MODEL
        assert (await answer_of(agent, a_turn())).entries[0].data["usage"]["model"] == OTHER
        assert (len(first.requests), len(second.requests)) == (4, 1)


async def test_a_limit_of_our_own_is_no_reason_to_ask_another_model() -> None:
    class Full:
        async def admit(self, *_: Any) -> Any:
            raise HeldBack(timedelta(seconds=1))

    async with open_provider() as first, open_provider() as second:
        agent = LlmAgent(with_fallback(first, second))
        agent.take_admission(Full())  # type: ignore[arg-type]
        with pytest.raises(HeldBack):
            await answer_of(agent, a_turn())
        assert (first.requests, second.requests) == ([], [])


async def test_a_model_that_answers_nobody_is_left_alone_for_a_while_and_then_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_provider(openai.BROKEN) as first, open_provider() as second:
        agent = LlmAgent(with_fallback(first, second))
        for _ in range(3):
            await answer_of(agent, a_turn())
        assert (len(first.requests), len(second.requests)) == (1, 3)
        now = time.monotonic
        monkeypatch.setattr("workers.agents.model.fallback.time.monotonic", lambda: now() + REST_SECONDS)
        assert (await answer_of(agent, a_turn())).entries[0].data["usage"]["model"] == openai.MODEL


async def test_a_resting_model_is_asked_all_the_same_where_no_other_can_answer() -> None:
    async with open_provider(openai.BROKEN) as first, open_provider(None, openai.BROKEN) as second:
        agent = LlmAgent(with_fallback(first, second))
        answers = [await answer_of(agent, a_turn()) for _ in range(2)]
        assert [answer.entries[0].data["usage"]["model"] for answer in answers] == [OTHER, openai.MODEL]


@pytest.mark.parametrize(
    ("troubles", "ends_as"),
    [
        ((openai.OUT_OF_QUOTA, openai.BROKEN), Outage),
        ((openai.BROKEN, openai.OUT_OF_QUOTA), Outage),
        ((openai.BROKEN, BAD_KEY), Outage),
        ((openai.BROKEN, openai.TOO_LONG), Outage),
        ((openai.OUT_OF_QUOTA, WITHOUT_AN_END), Transient),
        ((openai.OUT_OF_QUOTA, openai.OUT_OF_QUOTA), QuotaUsedUp),
        ((openai.TOO_LONG, None), TooLong),
    ],
)
async def test_where_no_model_can_answer_the_turn_ends_as_the_most_hopeful_of_them_says(
    troubles: tuple[Trouble, Trouble], ends_as: type[Exception]
) -> None:
    async with open_provider(troubles[0]) as first, open_provider(troubles[1]) as second:
        with pytest.raises(ends_as):
            await answer_of(LlmAgent(with_fallback(first, second)), a_turn())


@pytest.mark.parametrize("trouble", [CUT_IN_THE_MIDDLE, WITHOUT_AN_END])
async def test_an_answer_that_was_cut_in_the_middle_begins_again_and_what_it_cost_counts(trouble: Trouble) -> None:
    async with open_provider(trouble) as first, open_provider() as second:
        events = await events_of(LlmAgent(with_fallback(first, second)), a_turn())
        again = events.index(Restarted())
        assert "".join(event.text for event in events[:again] if isinstance(event, Delta)) == "The first half of "
        assert "".join(event.text for event in events[again:] if isinstance(event, Delta)) == "heard: hello"
        [row] = [event.entry for event in events if isinstance(event, Row)]
        assert isinstance(events[-1], Done) and events[-1].replies[0].text == row.text == "heard: hello"
        [cut] = [event.usage for event in events if isinstance(event, Spent) and not event.usage.get("partial")]
        assert (cut["model"], cut["estimated"]) == (openai.MODEL, True)
        assert cut["input"] > 0 and cut["output"] >= 5
    async with open_provider(trouble) as first, open_provider() as second:
        result = await answer_of(LlmAgent(with_fallback(first, second)), a_turn())
        assert [spent["model"] for spent in result.spent] == [openai.MODEL]
        assert [row.data["usage"]["model"] for row in result.entries] == [OTHER]


async def test_a_stop_while_the_next_model_speaks_keeps_its_words_and_not_those_of_the_first() -> None:
    async with open_provider(CUT_IN_THE_MIDDLE) as first, open_provider() as second:
        second.pause = asyncio.Event()  # before its last word
        reading = Reading(
            LlmAgent(with_fallback(first, second)),
            a_turn("some words"),
            lambda event: reading.stop() if isinstance(event, Delta) and "some" in event.text else None,
        )
        with pytest.raises(Stopped) as stopped:
            await reading.result()
    assert stopped.value.kept is not None
    assert [row.text for row in stopped.value.kept.entries] == ["heard: some"]


async def test_tools_that_have_run_do_not_run_again_and_the_turn_stays_with_the_model_that_it_turned_to() -> None:
    toolbox.forget()
    twice = says(calling(a_call("add", '{"a": 3, "b": 4}', "call_2")), "seven")
    async with (
        open_provider(None, openai.BROKEN, answer=says(calling(a_call("add", '{"a": 1, "b": 2}')))) as first,
        open_provider(answer=twice) as second,
    ):
        agent = LlmAgent(with_fallback(first, second, tools=TOOLS))
        result = await answer_of(agent, a_turn_with_steps())
    assert [(row.role, row.text) for row in result.entries if row.text] == [
        ("tool", "3"),
        ("tool", "7"),
        ("assistant", "seven"),
    ]
    assert (len(first.requests), len(second.requests)) == (2, 2)
    shown = [(message["role"], message.get("content")) for message in second.requests[0].body["messages"]]
    assert ("tool", "3") in shown
    models = [row.data["usage"]["model"] for row in result.entries if row.role == "assistant"]
    assert models == [openai.MODEL, OTHER, OTHER]


async def test_a_fallback_is_shown_as_much_as_it_reads() -> None:
    history = [row for n in range(40) for row in (Entry("user", f"q{n} " * 30), Entry("assistant", f"a{n} " * 30))]
    async with open_provider(openai.BROKEN) as first, open_provider() as second:
        small = other(second, context_tokens=2000)
        await answer_of(LlmAgent(config(first, fallbacks={1: small}, max_output_tokens=200)), a_turn("hi", *history))
        assert len(first.requests[0].messages) > 80
        assert 2 < len(second.requests[0].messages) < 40


async def test_questions_aside_are_answered_by_a_fallback_too() -> None:
    async with open_provider(openai.BROKEN) as first, open_provider() as second:
        answer = await LlmAgent(with_fallback(first, second)).ask((Entry("user", "title?"),), "Be brief.")
        assert (answer.text, answer.instead_of, answer.usage["model"]) == ("heard: title?", openai.MODEL, OTHER)


async def test_a_conversation_that_was_switched_to_another_model_has_the_same_fallbacks() -> None:
    async with open_provider(openai.BROKEN) as first, open_provider() as second:
        agent = LlmAgent(with_fallback(first, second, models=("listed",)))
        result = await answer_of(agent, replace(a_turn(), model="listed"))
        assert first.requests[0].body["model"] == "listed"
        assert result.entries[0].data["usage"]["model"] == OTHER


async def test_a_message_does_not_wait_for_a_provider_while_a_fallback_answers_and_each_models_cost_is_kept(
    make_settings: Callable[..., Settings],
) -> None:
    async with (
        open_provider(*[openai.BROKEN, openai.RATE_LIMITED] * 20) as first,
        open_provider() as second,
        open_pipeline(make_settings(max_attempts=1, provider_outage_seconds=1, titles=False)) as pipe,
    ):
        rig = Rig(pipe)
        async with working(pipe, LlmAgent(with_fallback(first, second))):
            rows = await ended(pipe, [(await rig.accept(text)).id for text in ("one", "two")])
        assert [(row["state"], row["attempts"]) for row in rows] == [("answered", 1)] * 2
        assert await rig.transcript() == ["one", "heard: one", "two", "heard: two"]
        history = (await load_session(key_of(), pipe.store)).history
        models = [entry.data["usage"]["model"] for entry in history if entry.role == "assistant"]
        assert models == [OTHER, OTHER]


async def test_a_message_waits_and_loses_no_attempt_while_all_models_are_away(
    make_settings: Callable[..., Settings],
) -> None:
    async with (
        open_provider(openai.BROKEN, openai.OUT_OF_QUOTA) as first,
        open_provider(openai.OUT_OF_QUOTA, openai.BROKEN) as second,
        open_pipeline(make_settings(max_attempts=1, titles=False)) as pipe,
    ):
        rig = Rig(pipe)
        async with working(pipe, LlmAgent(with_fallback(first, second))):
            [row] = await ended(pipe, [(await rig.accept("one")).id])
        assert (row["state"], row["attempts"]) == ("answered", 1)


async def test_a_turn_in_a_process_of_its_own_has_the_fallbacks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_provider(openai.BROKEN) as first, open_provider() as second:
        for name, value in {
            "MODEL": openai.MODEL,
            "BASE_URL": first.url,
            "API_KEY": KEY,
            "FALLBACKS__1__MODEL": OTHER,
            "FALLBACKS__1__BASE_URL": second.url,
            "FALLBACKS__1__API_KEY": KEY,
        }.items():
            monkeypatch.setenv(f"KEYTURN_LLM__{name}", value)
        assert load().llm.fallbacks[1].model == OTHER
        assert KEY in load().secret_values()
        isolated = Isolated("llm")
        try:
            result = await answer_of(isolated, a_turn())
        finally:
            isolated.close()
    assert [row.data["usage"]["model"] for row in result.entries] == [OTHER]


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("1__API_KEY", "sk-\u00fc", "LLM__FALLBACKS"),
        ("1__BASE_URL", "ftp://x", "LLM__FALLBACKS"),
        ("first__MODEL", "m", "LLM__FALLBACKS"),
        ("1__API_KEY", "sk-1", "LLM__FALLBACKS__1__MODEL"),
    ],
)
def test_a_fallback_that_cannot_work_is_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, complaint: str
) -> None:
    monkeypatch.setenv(f"KEYTURN_LLM__FALLBACKS__{name}", value)
    with pytest.raises(ConfigurationError, match=complaint) as refused:
        load()
    assert value not in str(refused.value) or value == "m"
