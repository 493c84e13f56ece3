"""OpenAI's own Python client talks to us as it talks to OpenAI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest

from shared.pipeline import Pipeline
from tests.support.chat import Led
from tests.support.door import API_KEY, served
from tests.support.pipe import Rig
from tests.support.working import working
from workers.agents.contract import Agent


@asynccontextmanager
async def client(pipe: Pipeline, agent: Agent | None = None, key: str = API_KEY) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        served(pipe) as door,
        working(pipe, agent),
        openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{door.port}/v1", api_key=key, timeout=60) as opened,
    ):
        yield opened


async def test_the_openai_client_lists_models_and_gets_an_answer(pipe: Pipeline) -> None:
    async with client(pipe) as ours:
        models = [model.id async for model in ours.models.list()]
        assert models == ["main"] and (await ours.models.retrieve("main")).owned_by == "keyturn"
        answer = await ours.chat.completions.create(model="main", messages=[{"role": "user", "content": "hello"}])
    assert answer.choices[0].message.content == "echo: hello" and answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.total_tokens > 0


async def test_the_openai_client_streams_a_chat(pipe: Pipeline) -> None:
    led, texts, usage = Led(), list[str](), 0
    async with client(pipe, led) as ours:
        stream = await ours.chat.completions.create(
            model="main",
            messages=[{"role": "user", "content": "hello"}],
            stream=True,
            stream_options={"include_usage": True},
            extra_headers={"x-keyturn-session": "c1"},
        )
        led.say("one ")
        async for chunk in stream:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                texts.append(text)
                if len(texts) == 1:  # the first words were read while the turn runs
                    led.end("one two")
            usage = chunk.usage.total_tokens if chunk.usage is not None else usage
        assert await Rig(pipe).transcript("agent:main:api:dm:c1") == ["hello", "one two"]
    assert ("".join(texts), texts[0], usage) == ("one two", "one ", 10)


async def test_the_openai_client_raises_its_own_errors(pipe: Pipeline) -> None:
    async with client(pipe) as ours:
        with pytest.raises(openai.NotFoundError, match="no model"):
            await ours.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "x"}])
        with pytest.raises(openai.BadRequestError, match="messages"):
            await ours.chat.completions.create(model="main", messages=[])
        with pytest.raises(openai.AuthenticationError):
            await ours.with_options(api_key="wrong").models.list()
