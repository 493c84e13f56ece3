"""Requests in the form that chat front ends send. None was recorded: Open WebUI's headers and tasks follow its source code, the
others follow their documentation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from shared.pipeline import Pipeline
from tests.support.chat import PATH, Caller, Led, text_of
from tests.support.door import open_door, served
from tests.support.pipe import Rig
from tests.support.working import working
from workers.agents.contract import Agent

OPEN_WEBUI = {
    "stream": True,
    "model": "main",
    "messages": [
        {"role": "system", "content": "User Context:\n\nBe brief."},
        {"role": "user", "content": "How do I bake bread?"},
        {"role": "assistant", "content": "With flour."},
        {"role": "user", "content": "And salt?"},
    ],
    "stream_options": {"include_usage": True},
    "temperature": 0.8,
    "reasoning_effort": None,
}
OPEN_WEBUI_HEADERS = {
    "x_openwebui_user_name": "Ann",
    "x_openwebui_user_id": "5f0d1c2e-0000-4000-8000-000000000001",
    "x_openwebui_user_email": "ann@example.org",
    "x_openwebui_user_role": "user",
    "x_openwebui_chat_id": "8a1b2c3d-0000-4000-8000-000000000002",
}
TITLE_PROMPT = (
    "### Task:\nName the chat in few words.\n### Output:\n"
    'JSON format: { "title": "your concise title here" }\n### Chat History:\n<chat_history>\n'
    "USER: How do I bake bread?\nASSISTANT: With flour.\n</chat_history>"
)
OPEN_WEBUI_TITLE = {
    "model": "main",
    "messages": [{"role": "user", "content": TITLE_PROMPT}],
    "stream": False,
    "max_completion_tokens": 1000,
}
LIBRECHAT = {
    "model": "main",
    "user": "65a1b2c3d4e5f60718293a4b",
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "And salt?"}]},
    ],
}
LOBECHAT = {
    "messages": [{"content": "Be brief.", "role": "system"}, {"content": "And salt?", "role": "user"}],
    "model": "main",
    "stream": True,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "temperature": 1,
    "top_p": 1,
    "tools": [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}],
}
CHAT = "agent:main:api:dm:8a1b2c3d-0000-4000-8000-000000000002"


@asynccontextmanager
async def calling(pipe: Pipeline, agent: Agent | None = None) -> AsyncIterator[Caller]:
    async with served(pipe) as door, working(pipe, agent):
        yield Caller(door)


@pytest.mark.parametrize("request_", [OPEN_WEBUI, LIBRECHAT, LOBECHAT], ids=["open webui", "librechat", "lobechat"])
async def test_ag60_a_front_end_without_headers_is_answered_from_what_it_sent(
    pipe: Pipeline, request_: dict[str, Any]
) -> None:
    led = Led()
    led.end("Yes.")
    async with calling(pipe, led) as caller, caller.stream(request_) as chunks:
        said = await chunks.rest()
    [turn] = led.turns
    assert text_of(said) == "Yes." and turn.mail[0].text == "And salt?" and turn.instructions.endswith("Be brief.")
    assert len(turn.history) == (2 if request_ is OPEN_WEBUI else 0)
    assert ("usage" in said[-1]) == ("stream_options" in request_)


async def test_ag60_open_webui_with_its_headers_has_one_conversation_and_its_user(pipe: Pipeline) -> None:
    led = Led()
    async with calling(pipe, led) as caller:
        for text in ("Yes.", "No."):
            led.end(text)
            async with caller.stream(OPEN_WEBUI, **OPEN_WEBUI_HEADERS) as chunks:
                assert text_of(await chunks.rest()) == text
        assert await Rig(pipe).transcript(CHAT) == ["And salt?", "Yes.", "And salt?", "No."]
    source = led.turns[1].mail[0].source
    assert (source.user, source.user_name) == (OPEN_WEBUI_HEADERS["x_openwebui_user_id"], "Ann")
    assert [row.text for row in led.turns[1].history] == ["And salt?", "Yes."]


@pytest.mark.parametrize("with_chat", [True, False])
@pytest.mark.parametrize("with_task", [True, False])
async def test_ag60_the_title_task_is_answered_in_its_form_and_makes_no_turn(
    pipe: Pipeline, with_chat: bool, with_task: bool
) -> None:
    headers = {
        **(OPEN_WEBUI_HEADERS if with_chat else {}),
        **({"x_openwebui_task": "title_generation"} if with_task else {}),
    }
    async with open_door(pipe) as door:
        response = await Caller(door).ask(OPEN_WEBUI_TITLE, **headers)
        content = response.json()["choices"][0]["message"]["content"]
        assert orjson.loads(content) == {"title": "How do I bake bread?"}
        assert await door.nothing_stored()


@pytest.mark.parametrize("wants_usage", [True, False])
async def test_ag60_a_task_that_is_streamed_says_what_it_cost_only_where_asked(
    pipe: Pipeline, wants_usage: bool
) -> None:
    streamed = {**OPEN_WEBUI_TITLE, "stream": True, "stream_options": {"include_usage": wants_usage}}
    async with calling(pipe) as caller, caller.stream(streamed) as chunks:
        said = await chunks.rest()
    assert orjson.loads(text_of(said)) == {"title": "How do I bake bread?"}
    assert [chunk["choices"] == [] for chunk in said] == [False, False, *([True] if wants_usage else [])]


async def test_ag60_the_title_task_of_a_conversation_gets_the_title_that_it_has(pipe: Pipeline) -> None:
    led = Led()
    async with calling(pipe, led) as caller:
        led.end("Yes.")
        async with caller.stream(OPEN_WEBUI, **OPEN_WEBUI_HEADERS) as chunks:
            await chunks.rest()
        await caller.ask(
            {"model": "main", "messages": [{"role": "user", "content": "/title Bread"}]}, **OPEN_WEBUI_HEADERS
        )
        response = await caller.ask(OPEN_WEBUI_TITLE, **OPEN_WEBUI_HEADERS, x_openwebui_task="title_generation")
    assert orjson.loads(response.json()["choices"][0]["message"]["content"]) == {"title": "Bread"}


async def test_ag60_a_task_that_nobody_knows_runs_apart_from_the_conversation(pipe: Pipeline) -> None:
    led = Led()
    async with calling(pipe, led) as caller:
        led.end("merged")
        asked = {"model": "main", "messages": [{"role": "user", "content": "Merge these answers."}]}
        response = await caller.ask(asked, **OPEN_WEBUI_HEADERS, x_openwebui_task="moa_response_generation")
        assert response.json()["choices"][0]["message"]["content"] == "merged"
        assert await Rig(pipe).transcript(CHAT) == []


async def test_librechat_keeps_its_conversation_by_the_header_that_it_is_told_to_send(pipe: Pipeline) -> None:
    async with calling(pipe) as caller:
        async with caller.stream(LIBRECHAT, x_conversation_id="conv-1") as chunks:
            assert text_of(await chunks.rest()) == "echo: And salt?"
        assert await Rig(pipe).transcript("agent:main:api:dm:conv-1") == ["And salt?", "echo: And salt?"]


async def test_an_error_before_the_stream_is_json_with_a_status(pipe: Pipeline) -> None:
    async with open_door(pipe) as door:
        for body in ({**OPEN_WEBUI, "model": "gpt-5"}, {**OPEN_WEBUI, "messages": []}):
            response = await door.request("POST", PATH, door.key, orjson.dumps(body))
            assert response.status_code in (400, 404)
            assert response.headers["content-type"] == "application/json" and "message" in response.json()["error"]
        assert await door.nothing_stored()


async def test_hostile_requests_are_refused_in_form_and_leave_nothing(pipe: Pipeline) -> None:
    user = {"role": "user", "content": "hello"}
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    bodies = [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        orjson.dumps({"messages": [user] * 5000}),
        orjson.dumps({"messages": [{"role": "root", "content": "x"}]}),
        orjson.dumps({"messages": [{"role": "user", "content": deep}]}),
        orjson.dumps({"messages": {"role": "user"}}),
        orjson.dumps({"messages": [user], "stream": "true"}),
        orjson.dumps({"messages": [user], "metadata": {"conversation_id": "x" * 300}}),
        orjson.dumps({"messages": [user], "user": "x" * 300}),
    ]
    async with open_door(pipe) as door:
        for body in bodies:
            async with asyncio.timeout(60):
                response = await door.request("POST", PATH, door.key, body)
            assert response.status_code == 400, body[:80]
            assert response.json()["error"]["type"] == "invalid_request_error"
        assert await door.nothing_stored()
        assert not door.records and not door.lines_at("error")
