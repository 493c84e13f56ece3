"""The `llm` agent with a model of Anthropic's, against a local stand-in for its API: everything that pydantic-ai is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from keyturn import Delta, Event, Row
from shared.errors import Outage, PipelineError, RateLimited, Transient
from shared.messages import Entry
from shared.settings import LlmSettings
from shared.settings.agents import McpServer
from tests.flow.test_mcp import a_http_server, stdio
from tests.flow.test_tools import TOOLS, a_turn
from tests.support import toolbox
from tests.support.anthropic_api import (
    KEY,
    MODEL,
    Answer,
    AnthropicAsked,
    AnthropicProvider,
    AnthropicTrouble,
    Block,
    heard,
    open_anthropic,
    text,
    tool_use,
)
from tests.support.pipe import Rig
from tests.support.reading import answer_of
from workers.agents.llm import LlmAgent
from workers.agents.model.contract import AccessRefused, ModelRefused, TooLong


@pytest.fixture(autouse=True)
def forgotten() -> None:
    toolbox.forget()


@asynccontextmanager
async def asking(
    monkeypatch: pytest.MonkeyPatch, *troubles: AnthropicTrouble | None, answer: Answer = heard, **llm: Any
) -> AsyncIterator[tuple[LlmAgent, AnthropicProvider]]:
    async with open_anthropic(*troubles, answer=answer) as provider:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        settings = {"model": f"anthropic:{MODEL}", "api_key": SecretStr(KEY), "system_prompt": "Be kind.", **llm}
        agent = LlmAgent(LlmSettings(**settings))
        try:
            yield agent, provider
        finally:
            if agent._servers is not None:
                await agent._servers.close()


async def test_text_is_streamed_and_its_usage_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking(monkeypatch) as (agent, provider):
        events: list[Event] = [event async for event in agent.run(a_turn("hello"))]
    [asked] = provider.requests
    assert asked.key == KEY and asked.body["stream"] is True
    assert "Be kind." in str(asked.body["system"]) and "hello" in str(asked.last)
    assert [event.text for event in events if isinstance(event, Delta)] == ["heard: hello"[:6], "heard: hello"[6:]]
    [row] = [event.entry for event in events if isinstance(event, Row)]
    assert row.text == "heard: hello"
    usage = row.data["usage"]
    assert (usage["model"], usage["output"], usage["cache_read"]) == (MODEL, 5, 2) and "estimated" not in usage


async def test_a_conversation_goes_through_the_pipeline_with_what_was_said_before(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(monkeypatch) as (agent, provider):
        rig.agent = agent
        for said in ("one", "two"):
            await rig.accept(said)
            await rig.run_turns()
    assert await rig.transcript() == ["one", "heard: one", "two", "heard: two"]
    roles = [message["role"] for message in provider.requests[1].body["messages"]]
    assert roles == ["user", "assistant", "user"]


def looks_first(asked: AnthropicAsked) -> Sequence[Block]:
    """Calls a tool, and tells what came of it."""
    if asked.last[0]["type"] != "tool_result":
        return [text("Let me see."), tool_use("add", a=2, b=3)]
    return [text(f"It is {asked.last[0]['content']}")]


async def test_a_tool_is_called_and_its_result_shown_in_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking(monkeypatch, answer=looks_first, tools=TOOLS) as (agent, provider):
        result = await answer_of(agent, a_turn("what is 2 + 3?"))
    assert [row.role for row in result.entries] == ["assistant", "tool", "assistant"]
    [offered] = [tool for tool in provider.requests[0].body["tools"] if tool["name"] == "add"]
    assert set(offered["input_schema"]["properties"]) == {"a", "b"}
    [shown] = [block for block in provider.requests[1].last if block["type"] == "tool_result"]
    assert shown["tool_use_id"] == "toolu_1" and "5" in str(shown["content"])
    assert result.replies[-1].text.startswith("It is")


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_tools_of_mcp_servers_are_called(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    def answer(asked: AnthropicAsked) -> Sequence[Block]:
        [name] = [tool["name"] for tool in asked.body["tools"] if tool["name"].endswith("add")]
        if asked.last[0]["type"] == "tool_result":
            return [text(str(asked.last[0]["content"]))]
        return [tool_use(name, a=2, b=3)]

    async with a_http_server() as (url, _):
        server = stdio() if kind == "stdio" else McpServer(url=url)
        async with asking(monkeypatch, answer=answer, mcp={"calc": server}) as (agent, _):
            result = await answer_of(agent, a_turn("add"))
    assert "5" in result.replies[-1].text


TOO_LONG = AnthropicTrouble(400, "invalid_request_error", "prompt is too long: 213000 tokens > 200000 maximum")


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (AnthropicTrouble(429, "rate_limit_error", headers={"retry-after": "7"}), RateLimited),
        (AnthropicTrouble(429, "rate_limit_error"), RateLimited),
        (AnthropicTrouble(500, "api_error"), Outage),
        (AnthropicTrouble(529, "overloaded_error"), Outage),
        (AnthropicTrouble(401, "authentication_error"), AccessRefused),
        (AnthropicTrouble(400, "invalid_request_error"), ModelRefused),
        (TOO_LONG, TooLong),
        (AnthropicTrouble(events=0), Outage),
        (AnthropicTrouble(events=4), Outage),
        (AnthropicTrouble(events=4, ends=True), Transient),
        (AnthropicTrouble(body=b"event: ping\ndata: {not json\n\n"), Transient),
        (AnthropicTrouble(body=b"<html>I am a proxy</html>"), Transient),
    ],
    ids=["429", "429 without a time", "500", "529", "key", "refused", "too long", "cut", "cut in the middle",
         "without an end", "garbage", "no stream"],
)  # fmt: skip
async def test_what_goes_wrong_is_told_apart_and_nothing_is_repeated_by_the_client(
    monkeypatch: pytest.MonkeyPatch, trouble: AnthropicTrouble, expected: type[PipelineError]
) -> None:
    async with asking(monkeypatch, trouble, trouble, trouble) as (agent, provider):
        with pytest.raises(expected) as raised:
            async with asyncio.timeout(60):
                await answer_of(agent, a_turn("a secret word"))
    assert len(provider.requests) == 1
    assert "secret" not in str(raised.value) and KEY not in str(raised.value)
    if trouble.headers:
        assert isinstance(raised.value, RateLimited) and raised.value.retry_after == timedelta(seconds=7)


async def test_a_conversation_that_is_too_long_is_shown_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    history = [row for n in range(20) for row in (Entry("user", f"q{n}"), Entry("assistant", f"a{n}"))]
    async with asking(monkeypatch, TOO_LONG) as (agent, provider):
        result = await answer_of(agent, replace(a_turn("hello"), history=tuple(history)))
    assert result.replies[-1].text == "heard: hello"
    first, second = (len(asked.body["messages"]) for asked in provider.requests)
    assert second < first
