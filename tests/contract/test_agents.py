"""What every agent promises, whatever it is made of: the built-in ones, and every form that an author may choose."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from keyturn import Delta, Done, Event, Row, Turn
from shared.errors import Permanent, Stopped
from tests.support import answering, openai, program
from tests.support.agent_server import Answered, Posted, in_json, open_agent_server, streamed
from tests.support.openai import KEY, MODEL, Asked, open_provider
from tests.support.pipe import an_inbound, key_of
from tests.support.reading import answer_of
from workers.agents import local
from workers.agents.contract import Agent, StartsFirst
from workers.agents.isolated import Isolated
from workers.agents.reading import Reading
from workers.agents.resolve import resolve

STREAMING = ("generator", "WithGenerator", "WithIterator")
OF_TURNS = ("coroutine", "turn_function", "WithCoroutine", *STREAMING)
ASYNC = ("async_text_function", "coroutine", "WithCoroutine", *STREAMING)
WRITTEN = ("text_function", "async_text_function", *OF_TURNS)
MODELS = ("llm", "local")
OUTSIDE = ("command", "http")
BUILT_IN = (*MODELS, *OUTSIDE)
TROUBLES = {"refuse": [openai.MALFORMED], "fail": [openai.BROKEN]}
SECONDS = 60


def a_turn(text: str) -> Turn:
    return Turn("turn_1", key_of(), "ses_1", (), (an_inbound(text),), run="run_1")


def name_of(kind: str) -> str:
    """What AGENT names it by."""
    return f"tests.support.answering:{kind}" if kind in WRITTEN else kind


def served(posted: Posted) -> Answered:
    """What the server of an `http` agent says."""
    word, _, rest = posted.text.partition(" ")
    if word == "refuse":
        return in_json({"notice": answering.NOTICE}, 422)
    if word == "fail":
        return Answered(status=500)
    if word == "hang":
        return Answered(waits=True)
    pieces = [{"delta": piece} for piece in rest]
    return streamed(*pieces, {"row": {"role": "assistant", "text": rest}}, {"done": [{"text": rest}]})


def repeated(asked: Asked) -> str:
    return asked.last.removeprefix("say ")


@asynccontextmanager
async def opened(kind: str, word: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agent]:
    """The agent, in a world where it does what the word says."""
    answering.hanging.clear()
    answering.cleaned_up.clear()
    if kind in OUTSIDE:
        async with open_agent_server(served) as agents_server:
            monkeypatch.setenv(
                "KEYTURN_COMMAND__LINE", shlex.join([sys.executable, "-IS", program.__file__, "--events"])
            )
            monkeypatch.setenv("KEYTURN_COMMAND__OUTPUT", "events")
            monkeypatch.setenv("KEYTURN_HTTP__URL", agents_server.url)
            yield resolve(kind)
        return
    if kind not in MODELS:
        yield resolve(name_of(kind))
        return
    async with open_provider(*TROUBLES.get(word, []), answer=repeated) as provider:
        if word == "hang":
            provider.gate = asyncio.Event()
        for name, value in {"MODEL": MODEL, "BASE_URL": provider.url, "API_KEY": KEY}.items():
            monkeypatch.setenv(f"KEYTURN_LLM__{name}", value)
        server = SimpleNamespace(listening_address=provider.url.removesuffix("/v1"))
        monkeypatch.setattr(local, "find_spec", lambda _: server)
        monkeypatch.setattr(local, "_serve", lambda _: server)
        monkeypatch.setattr("secrets.token_urlsafe", lambda _: KEY)
        yield resolve(kind)


async def events_of(agent: Agent | StartsFirst, turn: Turn) -> list[Event]:
    if not isinstance(agent, StartsFirst):
        return [event async for event in agent.run(turn)]
    async with agent.started() as ready:
        return [event async for event in ready.run(turn)]


async def is_hanging(kind: str, task: asyncio.Task[object]) -> None:
    """Wait until the agent waits for something that never comes."""
    async with asyncio.timeout(SECONDS):
        while kind not in BUILT_IN and not answering.hanging.is_set():
            await asyncio.sleep(0.005)
    for _ in range(20):  # the others wait for somebody else, soon or now: both are to be ended
        await asyncio.sleep(0.005)
    assert not task.done()


@pytest.mark.parametrize("kind", ["echo", *WRITTEN, *BUILT_IN])
async def test_an_answer_is_one_row_and_the_same_text_for_the_chat(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(kind, "say", monkeypatch) as agent:
        result = await answer_of(agent, a_turn("say hello"))
    answer = "echo: say hello" if kind == "echo" else "hello"
    assert [(row.role, row.text) for row in result.entries] == [("assistant", answer)]
    assert [reply.text for reply in result.replies] == [answer]


@pytest.mark.parametrize("kind", WRITTEN)
async def test_an_empty_answer_says_nothing(kind: str) -> None:
    result = await answer_of(resolve(name_of(kind)), a_turn("silent"))
    assert (result.entries, result.replies) == ((), ())


@pytest.mark.parametrize("kind", [*WRITTEN, *BUILT_IN])
async def test_a_refusal_is_permanent(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(kind, "refuse", monkeypatch) as agent:
        with pytest.raises(Permanent) as refused:
            await answer_of(agent, a_turn("refuse"))
    assert kind not in WRITTEN or refused.value.notice == answering.NOTICE


@pytest.mark.parametrize("kind", [*WRITTEN, *BUILT_IN])
async def test_any_other_error_is_raised_as_it_is(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(kind, "fail", monkeypatch) as agent:
        with pytest.raises(RuntimeError if kind in WRITTEN else Exception) as failed:
            await answer_of(agent, a_turn("fail"))
    assert not isinstance(failed.value, Permanent)


@pytest.mark.parametrize("kind", [*WRITTEN, *BUILT_IN])
async def test_a_turn_ends_at_its_deadline(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(kind, "hang", monkeypatch) as agent:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await answer_of(agent, replace(a_turn("hang"), deadline=time.monotonic() + 0.05))
    assert kind not in ASYNC or answering.cleaned_up


@pytest.mark.parametrize("kind", [*WRITTEN, *BUILT_IN])
async def test_a_stopped_turn_ends_and_the_agent_cleans_up(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(kind, "hang", monkeypatch) as agent:
        reading = Reading(agent, a_turn("hang"))
        task = asyncio.create_task(reading.result())
        await is_hanging(kind, task)
        reading.stop()
        with pytest.raises(Stopped):
            await asyncio.wait_for(task, SECONDS)
    assert kind not in ASYNC or answering.cleaned_up


@pytest.mark.parametrize("kind", [*WRITTEN, *BUILT_IN])
async def test_a_worker_that_ends_ends_the_agent(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(kind, "hang", monkeypatch) as agent:
        task = asyncio.create_task(answer_of(agent, a_turn("hang")))
        await is_hanging(kind, task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, SECONDS)
    assert kind not in ASYNC or answering.cleaned_up


@pytest.mark.parametrize("kind", ["echo", *WRITTEN, *BUILT_IN])
async def test_the_last_event_and_no_other_is_done(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(kind, "say", monkeypatch) as agent:
        events = await events_of(agent, a_turn("say hello"))
    assert all(isinstance(event, Event) for event in events)
    assert [n for n, event in enumerate(events, 1) if isinstance(event, Done)] == [len(events)]


@pytest.mark.parametrize("kind", [*STREAMING, *OUTSIDE])
async def test_the_pieces_of_a_streamed_answer_are_the_text_of_its_row(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(kind, "say", monkeypatch) as agent:
        events = await events_of(agent, a_turn("say hello there"))
    [row] = [event.entry for event in events if isinstance(event, Row)]
    pieces = [event.text for event in events if isinstance(event, Delta)]
    assert len(pieces) > 1 and "".join(pieces) == row.text == "hello there"


@pytest.mark.parametrize("kind", OF_TURNS)
async def test_usage_is_kept_with_its_row_and_where_no_row_has_it(kind: str) -> None:
    result = await answer_of(resolve(name_of(kind)), a_turn("spend"))
    assert [row.data["usage"] for row in result.entries] == [answering.USED]
    assert result.spent == (answering.FAILED,)


@pytest.mark.parametrize("kind", MODELS)
async def test_a_models_row_has_its_usage(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(kind, "say", monkeypatch) as agent:
        result = await answer_of(agent, a_turn("say hello"))
    assert result.entries[0].data["usage"]["input"] > 0


@pytest.mark.parametrize("kind", ["echo", *WRITTEN, "llm", *OUTSIDE])
async def test_an_isolated_agent_yields_and_raises_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    isolated = Isolated(name_of(kind))
    try:
        for word in ("say hello", "spend") if kind in OF_TURNS else ("say hello",):
            async with opened(kind, word, monkeypatch) as agent:
                direct = await events_of(agent, a_turn(word))
                assert await events_of(isolated, a_turn(word)) == direct
        for word in ("refuse", "fail") if kind in WRITTEN else ():
            with pytest.raises(Exception) as direct_error:
                await events_of(resolve(name_of(kind)), a_turn(word))
            with pytest.raises(Exception, match=str(direct_error.value)) as error:
                await events_of(isolated, a_turn(word))
            assert isinstance(error.value, Permanent) == isinstance(direct_error.value, Permanent)
    finally:
        isolated.close()
