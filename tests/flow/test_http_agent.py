"""AGENT=http: each turn is posted to a URL, and every answer ends as documented."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from shared.agent.events import Delta, Done, Row
from shared.agent.turn import Turn
from shared.errors import (
    AgentFault,
    ConfigurationError,
    Outage,
    Permanent,
    PipelineError,
    RateLimited,
    Stopped,
    Transient,
)
from shared.messages import Entry, Reply
from shared.settings import Settings
from shared.settings.agents import HttpSettings
from tests.support.agent_server import AgentServer, Answered, Posted, in_json, open_agent_server, plain, streamed
from tests.support.openai import KEY, MODEL, open_provider
from tests.support.pipe import an_inbound, key_of
from tests.support.reading import answer_of
from workers.agents.contract import Agent
from workers.agents.http import HttpAgent
from workers.agents.reading import Reading
from workers.agents.resolve import resolve

SECONDS = 60


def a_turn(text: str) -> Turn:
    history = (Entry("user", "before"), Entry("assistant", "after"))
    return Turn("turn_1", key_of(), "ses_1", history, (an_inbound(text),), run="run_1")


def an_agent(server: AgentServer, **settings: Any) -> HttpAgent:
    return HttpAgent(HttpSettings(url=server.url, **settings))


async def answer_with(answer: Answered, **settings: Any) -> tuple[tuple[Entry, ...], tuple[Reply, ...]]:
    async with open_agent_server(lambda _: answer) as server:
        result = await answer_of(an_agent(server, **settings), a_turn("hello"))
    return result.entries, result.replies


def test_the_end_of_the_event_loop_closes_the_connections_without_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """The loop closes all that is left of generators at once, in no order."""

    async def one_of_each() -> list[Agent]:
        async with open_agent_server(lambda _: plain("hi")) as server, open_provider() as provider:
            asked = HttpSettings(format="chat", url=provider.url, model=MODEL, token=SecretStr(KEY))
            agents = [an_agent(server), resolve("http", Settings(agent="http", http=asked))]
            for agent in agents:
                await answer_of(agent, a_turn("hello"))
            return agents

    assert len(asyncio.run(one_of_each())) == 2  # they live longer than the loop
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_a_server_gets_the_turn_with_the_token_and_a_key_that_is_the_same_on_every_attempt() -> None:
    def answer(posted: Posted) -> Answered:
        return plain(posted.text)

    async with open_agent_server(answer) as server:
        agent = an_agent(server, token="t-secret", headers={"X-Key": "k-secret"})
        for attempt in (1, 2):
            turn = replace(a_turn("hello"), attempt=attempt, deadline=time.monotonic() + 30, sender_key="k")
            assert (await answer_of(agent, turn)).replies == (Reply("hello"),)
        first, second = server.posted
    assert first.headers["authorization"] == "Bearer t-secret" and first.headers["x-key"] == "k-secret"
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == "run_1"
    assert 0 < first.body["seconds"] <= 30
    assert [row["text"] for row in first.body["turn"]["history"]] == ["before", "after"]
    assert (
        first.body["turn"]["sender_key"] == "" and not first.body["turn"]["file_directory"]
    )  # they are this machine's


HELLO = ((Entry("assistant", "hello"),), (Reply("hello"),))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (plain(" hello\n"), HELLO),
        (in_json({"text": "hello"}), HELLO),
        (in_json({"done": [{"text": "hello"}]}), HELLO),
        (in_json({"events": [{"delta": "hel"}, {"delta": "lo"}]}), HELLO),
        (
            streamed(
                {"delta": "hel"},
                {"delta": "lo"},
                {"row": {"role": "assistant", "text": "hello"}},
                {"done": [{"text": "hello"}]},
            ),
            HELLO,
        ),
        (streamed({"done": [{"text": "hello"}]}, end=b"\n\n"), HELLO),
        (
            Answered(
                b'data:{"delta":"hello"}\n\ndata:{"done":[{"text":"hello"}]}\n\n', "Text/Event-Stream; charset=utf-8"
            ),
            HELLO,
        ),
        (Answered(b'{"text": "hello"}', "application/json; charset=utf-8"), HELLO),
        (plain("x" * 1000), ((Entry("assistant", "x" * 1000),), (Reply("x" * 1000),))),  # as much as it may say
        (Answered(status=204), ((), ())),
        (plain(""), ((), ())),
    ],
)
async def test_an_answer_is_text_json_or_a_stream_of_events(answer: Answered, expected: object) -> None:
    assert await answer_with(answer, max_answer_bytes=1000) == expected


async def test_events_come_as_the_server_sends_them_and_a_stopped_turn_keeps_them() -> None:
    begun = replace(streamed({"delta": "so "}, {"delta": "far"}), waits=True)
    async with open_agent_server(lambda _: begun) as server:
        reading = Reading(an_agent(server), a_turn("hello"))
        task = asyncio.create_task(reading.result())
        async with asyncio.timeout(SECONDS):
            while len(reading._heard._deltas) < 2:
                await asyncio.sleep(0.005)
        reading.stop()
        with pytest.raises(Stopped) as stopped:
            await task
        async with asyncio.timeout(SECONDS):
            await server.hung_up.wait()
    assert stopped.value.kept is not None
    assert [row.text for row in stopped.value.kept.entries] == ["so far"]


async def test_plain_text_is_streamed() -> None:
    async with open_agent_server(lambda _: plain("hello there")) as server:
        events = [event async for event in an_agent(server).run(a_turn("hi"))]
    assert [event.text for event in events if isinstance(event, Delta)] == ["hello there"]
    assert events[-2:] == [Row(Entry("assistant", "hello there")), Done((Reply("hello there"),))]


@pytest.mark.parametrize(
    ("answer", "error", "about"),
    [
        (
            Answered(status=429, headers={"retry_after": "7"}),
            RateLimited,
            {"retry_after": timedelta(seconds=7), "status": 429},
        ),
        (Answered(status=429), RateLimited, {"status": 429}),
        (Answered(status=503, headers={"retry_after": "9"}), RateLimited, {"retry_after": timedelta(seconds=9)}),
        (Answered(status=529, headers={"retry_after": "9"}), RateLimited, {"status": 529, "provider": "127.0.0.1"}),
        (Answered(status=503, headers={"retry_after": "864000"}), RateLimited, {"retry_after": timedelta(days=1)}),
        (Answered(status=503), Outage, {"status": 503, "provider": "127.0.0.1"}),
        (Answered(status=529), Outage, {"status": 529}),
        (Answered(status=500), Outage, {"status": 500}),
        (Answered(status=502, headers={"retry_after": "9"}), Outage, {"status": 502}),
        (replace(plain("hel"), is_cut=True), Outage, {"provider": "127.0.0.1"}),
        (Answered(status=408), Transient, {}),
        (Answered(status=409), Transient, {}),
        (Answered(status=425), Transient, {}),
        (streamed({"delta": "hel"}), Transient, {}),
        (Answered(status=404), Permanent, {"notice": None}),
        (in_json({"notice": "Not on Sundays."}, 422), Permanent, {"notice": "Not on Sundays."}),
        (in_json({"notice": ["no text"]}, 400), Permanent, {"notice": None}),
        (in_json(["no object"], 400), Permanent, {"notice": None}),
        (in_json({"text": "created"}, 201), Permanent, {"notice": None}),
        (Answered(status=302, headers={"location": "http://127.0.0.1:1/"}), Permanent, {"notice": None}),
        (in_json({"unheard": 1}), AgentFault, {}),
        (Answered(b"{", "application/json"), AgentFault, {}),
        (Answered(b"<html>", "text/html"), AgentFault, {}),
        (Answered(b"data: no JSON\n\n", "text/event-stream"), AgentFault, {}),
        (Answered(b"x" * 1001), AgentFault, {}),
        (Answered(b"x" * 1001, status=400), AgentFault, {}),
    ],
)
async def test_every_other_answer_ends_as_documented(
    answer: Answered, error: type[PipelineError], about: dict[str, Any]
) -> None:
    with pytest.raises(error) as failed:
        await answer_with(answer, max_answer_bytes=1000)
    assert type(failed.value) is error
    assert {name: getattr(failed.value, name) for name in about} == about


@pytest.mark.parametrize(("status", "is_redirect"), [(300, True), (308, True), (399, True), (299, False), (400, False)])
async def test_only_of_a_redirect_the_operator_is_told_to_change_the_address(status: int, is_redirect: bool) -> None:
    with pytest.raises(Permanent) as failed:
        await answer_with(Answered(status=status))
    assert ("set HTTP__URL to where it leads" in str(failed.value)) == is_redirect


async def test_a_long_notice_is_cut() -> None:
    with pytest.raises(Permanent) as failed:
        await answer_with(in_json({"notice": "x" * 2001}, 400))
    assert failed.value.notice == "x" * 2000


async def test_a_turn_without_a_run_a_token_or_a_deadline_is_posted_without_them() -> None:
    async with open_agent_server(lambda _: plain("hi")) as server:
        await answer_of(an_agent(server), replace(a_turn("hello"), run=""))
        with pytest.raises(TimeoutError):
            await answer_of(an_agent(server), replace(a_turn("hello"), deadline=time.monotonic() - 1))
        late = replace(a_turn("late"), deadline=time.monotonic() - 1)
        assert [event async for event in an_agent(server).run(late)][-1] == Done((Reply("hi"),))
        first, *_, last = server.posted
    assert first.headers["idempotency-key"] == "turn_1" and "authorization" not in first.headers
    assert first.headers["content-type"] == "application/json" and "text/event-stream" in first.headers["accept"]
    assert "seconds" not in first.body and last.body["seconds"] == 0


async def test_a_server_that_is_not_there_is_an_outage_and_one_that_says_nothing_is_tried_again() -> None:
    with pytest.raises(Outage):
        await answer_of(HttpAgent(HttpSettings(url="http://127.0.0.1:9/")), a_turn("hello"))
    with pytest.raises(Transient, match="in time"):
        await answer_with(Answered(waits=True), timeout_seconds=0.2)


async def test_no_redirect_is_followed_and_no_error_repeats_what_the_server_said() -> None:
    async with open_agent_server(lambda _: plain("secret")) as other:
        with pytest.raises(Permanent) as failed:
            await answer_with(Answered(b"canary", status=307, headers={"location": other.url}), token="t-canary")
        assert other.posted == []
    assert "canary" not in str(failed.value) and other.url not in str(failed.value)


async def test_any_chat_endpoint_is_an_agent_and_gets_no_system_prompt_of_ours() -> None:
    async with open_provider() as provider:
        block = HttpSettings(url=provider.url, format="chat", model=MODEL, token=SecretStr(KEY))
        result = await answer_of(resolve("http", Settings(agent="http", http=block)), a_turn("hello"))
    assert [reply.text for reply in result.replies] == ["heard: hello"]
    assert result.entries[0].data["usage"]["input"] > 0
    assert provider.requests[0].messages == [("user", "before"), ("assistant", "after"), ("user", "hello")]


@pytest.mark.parametrize("block", [HttpSettings(), HttpSettings(url="http://x/v1", format="chat")])
def test_settings_that_lack_something_are_refused_at_the_start(block: HttpSettings) -> None:
    with pytest.raises(ConfigurationError, match="AGENT=http"):
        resolve("http", Settings(agent="http", http=block))
