"""The `llm` agent streams, against a local stand-in for a provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from keyturn import Delta, Done, Event, Row, Spent, Thought
from shared.agent.turn import Result, Turn
from shared.errors import Outage, Permanent, RateLimited, Stopped, Transient
from shared.settings import LlmSettings
from tests.support.openai import KEY, MODEL, Provider, Trouble, open_provider
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.reading import answer_of
from workers.agents.llm import LlmAgent
from workers.agents.model.contract import TooLong, Unfinished
from workers.agents.openai_format import client
from workers.agents.openai_format.form import body
from workers.agents.openai_format.groups import AT_ONCE
from workers.agents.openai_format.pace import PROCESS_PACE
from workers.agents.reading import Reading

SECONDS = 60


def config(provider: Provider, **changes: Any) -> LlmSettings:
    values = {"model": MODEL, "base_url": provider.url, "api_key": SecretStr(KEY), "system_prompt": "Be kind."}
    return LlmSettings(**{**values, **changes})


def a_turn(text: str = "hello") -> Turn:
    return Turn("turn_1", key_of(), "ses_1", (), (an_inbound(text),), run="run_1")


async def events_of(agent: LlmAgent, turn: Turn) -> list[Event]:
    return [event async for event in agent.run(turn)]


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}) + b"\n\n"


BEGUN = chunk({"content": "The answer "})


async def test_the_pieces_of_an_answer_come_before_its_row_and_are_its_text() -> None:
    async with open_provider() as provider:
        provider.pause = asyncio.Event()
        run = LlmAgent(config(provider)).run(a_turn("one two three"))
        events: list[Event] = []
        async with asyncio.timeout(SECONDS):
            async for event in run:
                events.append(event)
                if isinstance(event, Delta):
                    provider.pause.set()  # the provider says its last word only when we have read one
    deltas = [event.text for event in events if isinstance(event, Delta)]
    [row] = [event.entry for event in events if isinstance(event, Row)]
    assert len(deltas) > 1 and "".join(deltas) == row.text == "heard: one two three"
    assert isinstance(events[-1], Done) and events[-1].replies[0].text == row.text
    assert row.data["usage"]["total"] > 0 and "partial" not in row.data["usage"]


async def test_a_long_answer_that_comes_fast_is_few_deltas() -> None:
    words = " ".join(f"word{n}" for n in range(2_000))
    async with open_provider(answer=lambda _: words) as provider:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        events = await events_of(LlmAgent(config(provider)), a_turn())
        took = loop.time() - begun
    deltas = [event.text for event in events if isinstance(event, Delta)]
    assert "".join(deltas) == words and len(deltas) <= 2 + 20 * took


async def test_other_tasks_run_between_the_beginnings_of_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def counted(name: str, *about: Any) -> bytes:
        begun.append(name)
        return body(name, *about)

    monkeypatch.setattr(client, "body", counted)
    async with open_provider() as provider:
        agent = LlmAgent(config(provider))
        answers = asyncio.gather(*(events_of(agent, a_turn()) for _ in range(100)))
        seen = [0]
        async with asyncio.timeout(SECONDS):
            while not answers.done():
                await asyncio.sleep(0)
                seen.append(len(begun))
    assert len(begun) == 100 and max(after - before for before, after in pairwise(seen)) <= AT_ONCE


async def test_the_more_answers_are_streamed_at_once_the_fewer_deltas_each_of_them_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = " ".join(f"word{n}" for n in range(2_000))
    monkeypatch.setattr(PROCESS_PACE, "_open", 5_000)  # so many others share a second's 5,000 pieces
    async with open_provider(answer=lambda _: words) as provider:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        events = await events_of(LlmAgent(config(provider)), a_turn())
        took = loop.time() - begun
    deltas = [event.text for event in events if isinstance(event, Delta)]
    assert "".join(deltas) == words and len(deltas) <= 2 + took
    assert PROCESS_PACE.seconds == 1.0 and PROCESS_PACE._open == 5_000  # this one is no longer counted


async def test_thoughts_are_streamed_apart_from_the_answer() -> None:
    async with open_provider(answer=lambda _: {"content": "42", "reasoning": "six times seven"}) as provider:
        events = await events_of(LlmAgent(config(provider)), a_turn())
    assert "".join(event.text for event in events if isinstance(event, Thought)) == "six times seven"
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "42"


async def test_thoughts_between_tags_are_kept_as_reasoning() -> None:
    async with open_provider(answer=lambda _: "<think>six times seven</think>\n\n42") as provider:
        result = await answer_of(LlmAgent(config(provider)), a_turn())
    [row] = result.entries
    assert (row.text, row.data["reasoning"]) == ("42", "six times seven")


async def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "all at once"}, "finish_reason": "stop"}]}
    trouble = Trouble(200, sent=orjson.dumps(whole), kind="application/json")
    async with open_provider(trouble) as provider:
        result = await answer_of(LlmAgent(config(provider)), a_turn())
    assert result.replies[0].text == "all at once"


async def test_the_connection_is_used_again() -> None:
    async with open_provider() as provider:
        agent = LlmAgent(config(provider))
        for _ in range(3):
            await answer_of(agent, a_turn())
        assert provider.connections == 1


# -- streams that end badly


async def raised(*troubles: Trouble, **changes: Any) -> Exception:
    async with open_provider(*troubles) as provider:
        with pytest.raises(Exception) as caught:
            await answer_of(LlmAgent(config(provider, **changes)), a_turn("canary words"))
    assert "canary" not in str(caught.value)
    return caught.value


async def test_ag35_a_stream_without_a_finish_reason_is_no_answer() -> None:
    error = await raised(Trouble(200, sent=BEGUN))
    assert isinstance(error, Unfinished) and isinstance(error, Transient) and error.text == "The answer "


async def test_ag35_the_turn_is_tried_again_and_nothing_of_the_torn_answer_is_kept(rig: Rig) -> None:
    async with open_provider(Trouble(200, sent=BEGUN)) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("hello")
        for _ in range(2):
            await rig.run_turns()
            await rig.expire_lease(rig.pipe.turns, key_of())
            await rig.pipe.turns.recover(key_of())
    assert await rig.transcript() == ["hello", "heard: hello"]


async def test_a_stream_that_is_cut_is_an_outage() -> None:
    assert type(await raised(Trouble(200, sent=BEGUN, cut_body=True))) is Outage


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"<html>Please sign in</html>", "text/html"),
        (b"data: {not json}\n\n", "text/event-stream"),
        (b"data: [1, 2]\n\n", "text/event-stream"),
        (b"{not json}", "application/json"),
        (b"", "text/event-stream"),
    ],
)
async def test_what_is_no_stream_of_completions_is_tried_again(sent: bytes, kind: str) -> None:
    error = await raised(Trouble(200, sent=sent or b"\n", kind=kind))
    assert isinstance(error, Transient) and not isinstance(error, Outage)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": "rate_limit_exceeded", "message": "canary"}, RateLimited),
        ({"code": 502, "message": "canary"}, Outage),
        ({"type": "overloaded_error"}, Outage),
        ({"type": "server_error"}, Outage),
        ({"code": "context_length_exceeded"}, TooLong),
        ({"code": "insufficient_quota"}, Permanent),
        ({"type": "invalid_request_error"}, Permanent),
        ("canary", Transient),
        ({"message": "canary"}, Transient),
    ],
)
async def test_an_error_in_the_middle_of_a_stream_is_what_it_says(error: Any, expected: type[Exception]) -> None:
    caught = await raised(Trouble(200, sent=BEGUN + b"data: " + orjson.dumps({"error": error}) + b"\n\n"))
    assert isinstance(caught, expected) and isinstance(caught, Permanent) == issubclass(expected, Permanent)


async def test_a_wait_in_milliseconds_counts_before_one_in_seconds() -> None:
    error = await raised(Trouble(429, "slow_down", headers={"retry-after-ms": "1500", "retry-after": "9"}))
    assert isinstance(error, RateLimited) and error.retry_after == timedelta(milliseconds=1500)


async def test_a_provider_that_is_overloaded_waits_as_long_as_it_says() -> None:
    error = await raised(Trouble(529, "overloaded_error", headers={"retry-after": "3"}))
    assert isinstance(error, RateLimited) and error.retry_after == timedelta(seconds=3)


async def test_a_stream_that_stalls_is_tried_again() -> None:
    async with open_provider() as provider:
        provider.pause = asyncio.Event()
        with pytest.raises(Transient, match="in time") as caught:
            await answer_of(LlmAgent(config(provider, timeout_seconds=0.3)), a_turn())
    assert not isinstance(caught.value, Outage)


# -- what it cost


class Watched:
    """The agent, and a signal that it has yielded an event of this kind."""

    def __init__(self, agent: LlmAgent, kind: type[Event]) -> None:
        self._agent = agent
        self._kind = kind
        self.seen = asyncio.Event()

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        async for event in self._agent.run(turn):
            yield event
            if isinstance(event, self._kind):
                self.seen.set()


async def stopped_after(kind: type[Event], agent: LlmAgent) -> Result:
    """What is kept of a turn that the user stops when it has yielded an event of this kind."""
    watched = Watched(agent, kind)
    reading = Reading(watched, a_turn())
    task = asyncio.create_task(reading.result())
    async with asyncio.timeout(SECONDS):
        await watched.seen.wait()
        reading.stop()
        with pytest.raises(Stopped) as stopped:
            await task
    assert stopped.value.kept is not None
    return stopped.value.kept


async def test_ag37_a_stopped_stream_keeps_its_text_and_counts_what_it_had_used() -> None:
    async with open_provider(answer=lambda _: "this is a rather long answer") as provider:
        provider.pause = asyncio.Event()
        kept = await stopped_after(Delta, LlmAgent(config(provider)))
    [row] = kept.entries
    used = row.data["usage"]
    assert row.text and "this is a rather long answer".startswith(row.text) and kept.spent == ()
    assert used["partial"] and used["estimated"] and used["input"] > 0 and used["output"] > 0
    assert used["total"] == used["input"] + used["output"]


async def test_ag37_a_stopped_turn_counts_its_request_even_if_nothing_was_said() -> None:
    async with open_provider(answer=lambda _: "42") as provider:
        provider.pause = asyncio.Event()
        kept = await stopped_after(Spent, LlmAgent(config(provider)))
    [used] = kept.spent
    assert kept.entries == () and used["partial"] and used["input"] > 0 and used["output"] > 0


async def test_usage_that_nobody_reports_is_estimated_and_never_zero() -> None:
    sent = BEGUN + chunk({}, "stop") + b"data: [DONE]\n\n"
    async with open_provider(answer=lambda _: sent) as provider:
        result = await answer_of(LlmAgent(config(provider)), a_turn())
    used = result.entries[0].data["usage"]
    assert used["estimated"] and used["input"] > 0 and used["output"] > 0 and result.spent == ()


# -- the prefix


async def test_ag38_a_hundred_turns_begin_with_the_same_bytes(rig: Rig) -> None:
    async with open_provider(answer=lambda asked: f"answer {len(asked.messages)}") as provider:
        rig.agent = LlmAgent(config(provider, tools=("tests.support.toolbox",), timestamps=True))
        for n in range(100):
            await rig.accept(f"message {n}")
            await rig.run_turns()
    bodies = [asked.body for asked in provider.requests]
    assert len(bodies) == 100
    for before, after in pairwise(bodies):
        assert list(before) == list(after)
        shown, more = (orjson.dumps(body["messages"]) for body in (before, after))
        head = {name: value for name, value in before.items() if name != "messages"}
        assert orjson.dumps(head) == orjson.dumps({name: after[name] for name in head})
        if len(before["messages"]) < len(after["messages"]):  # until the window is full
            assert more.startswith(shown[:-1])
