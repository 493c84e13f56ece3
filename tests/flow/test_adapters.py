"""Agents of other libraries, plugged in by one setting: the same conversation through each of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.test import TestModel
from typing_extensions import TypedDict

from keyturn import Began, Delta, Done, Ended, Event, Row, Turn
from shared.errors import AgentFault, ConfigurationError, Outage, Permanent, PipelineError, RateLimited, Stopped
from shared.messages import Entry, Reply
from tests.support import library_agents, openai
from tests.support.openai import Asked, Provider, a_call, open_provider
from tests.support.pipe import an_inbound, key_of
from tests.support.reading import answer_of
from workers.agents.adapters.choice import of_library
from workers.agents.contract import Agent
from workers.agents.reading import Reading
from workers.agents.resolve import from_function

SECONDS = 60
LIBRARIES: dict[str, Callable[[str], Any]] = {
    "pydantic_ai": library_agents.pydantic_ai,
    "openai_agents": library_agents.openai_agents,
    "langgraph": library_agents.langgraph,
}
EACH = pytest.mark.parametrize("library", LIBRARIES)
SDKS = pytest.mark.parametrize("library", ["pydantic_ai", "openai_agents"])


def an_agent(library: str, provider: Provider) -> Agent:
    agent = of_library(LIBRARIES[library](provider.url))
    assert agent is not None
    return agent


def a_turn(text: str, *history: Entry) -> Turn:
    return Turn("turn_1", key_of(), "ses_1", history, (an_inbound(text),), run="run_1")


def shop(asked: Asked) -> str | dict[str, Any]:
    """Looks the hours up, and says what it read."""
    last = asked.body["messages"][-1]
    if last["role"] == "tool":
        return f"We are {last['content']}."
    return {"content": "", "tool_calls": [a_call("opening_hours", f'{{"day": "{last["content"]}"}}')]}


@EACH
async def test_a_tool_call_is_seen_and_kept_and_the_answer_is_said(library: str) -> None:
    async with open_provider(answer=shop) as provider:
        agent = an_agent(library, provider)
        events = [event async for event in agent.run(a_turn("Sunday"))]
        result = await answer_of(agent, a_turn("Sunday"))
    rows = [event.entry for event in events if isinstance(event, Row)]
    assert [(row.role, row.text) for row in rows] == [
        ("assistant", ""),
        ("tool", "closed"),
        ("assistant", "We are closed."),
    ]
    assert rows[0].data["tool_calls"] == [
        {"id": "call_1", "name": "opening_hours", "arguments": rows[0].data["tool_calls"][0]["arguments"]}
    ]
    assert rows[1].data == {"tool_call_id": "call_1", "name": "opening_hours"}
    assert [row.data["usage"]["input"] > 0 for row in (rows[0], rows[2])] == [True, True]
    assert [type(event) for event in events if isinstance(event, Began | Ended)] == [Began, Ended]
    assert events[-1] == Done((Reply("We are closed."),))
    assert result.entries == tuple(rows)


@EACH
async def test_the_agent_knows_the_conversation_so_far_with_its_tool_calls(library: str) -> None:
    async with open_provider(answer=shop) as provider:
        agent = an_agent(library, provider)
        first = await answer_of(agent, a_turn("Sunday"))
        before = [Entry("user", "Sunday"), *first.entries]
        second = await answer_of(agent, a_turn("Monday", *before))
        told = [(message["role"], message["content"] or "") for message in provider.requests[2].body["messages"]]
    assert second.replies == (Reply("We are 9 to 17."),)
    assert [one for one in told if one[0] != "system"] == [
        ("user", "Sunday"),
        ("assistant", ""),
        ("tool", "closed"),
        ("assistant", "We are closed."),
        ("user", "Monday"),
    ]


@SDKS
async def test_text_is_streamed(library: str) -> None:
    async with open_provider(answer=lambda _: "one two three") as provider:
        events = [event async for event in an_agent(library, provider).run(a_turn("count"))]
    pieces = [event.text for event in events if isinstance(event, Delta)]
    assert len(pieces) > 1 and "".join(pieces) == "one two three"


@SDKS
async def test_a_stopped_turn_keeps_what_was_said_and_ends_the_request(library: str) -> None:
    async with open_provider(answer=lambda _: "one two three") as provider:
        provider.pause = asyncio.Event()
        reading = Reading(an_agent(library, provider), a_turn("count"))
        task = asyncio.create_task(reading.result())
        async with asyncio.timeout(SECONDS):
            while not any(reading._heard._deltas):
                await asyncio.sleep(0.005)
        reading.stop()
        with pytest.raises(Stopped) as stopped:
            await asyncio.wait_for(task, SECONDS)
    assert stopped.value.kept is not None
    assert stopped.value.kept.entries[0].text.startswith("one")


@SDKS
@pytest.mark.parametrize(
    ("trouble", "error"),
    [(openai.RATE_LIMITED, RateLimited), (openai.BROKEN, Outage), (openai.CUT, Outage), (openai.MALFORMED, Permanent)],
)
async def test_a_providers_error_is_told_apart(
    library: str, trouble: openai.Trouble, error: type[PipelineError]
) -> None:
    async with open_provider(trouble) as provider:
        with pytest.raises(error) as failed:
            await answer_of(an_agent(library, provider), a_turn("hello"))
    if isinstance(failed.value, RateLimited):
        assert failed.value.retry_after == timedelta(seconds=openai.RETRY_AFTER_SECONDS)
    assert "canary" not in str(failed.value)


@SDKS
async def test_a_tool_that_fails_does_not_end_the_turn_without_a_legal_history(library: str) -> None:
    async with open_provider(answer=shop) as provider:
        try:
            result = await answer_of(an_agent(library, provider), a_turn("never"))
        except PipelineError:
            raise
        except ValueError:  # pydantic-ai lets a tool's own error end the run: the turn is tried again
            return
    assert [row.role for row in result.entries] == ["assistant", "tool", "assistant"]


async def test_an_output_that_is_no_text_is_said_as_json() -> None:
    class Size(BaseModel):
        width: int

    agent = of_library(PydanticAgent(TestModel(custom_output_args={"width": 3}), output_type=Size))
    assert agent is not None
    result = await answer_of(agent, a_turn("how wide?"))
    assert result.replies == (Reply('{"width":3}'),)
    assert [row.role for row in result.entries] == ["assistant", "tool", "assistant"]


async def test_a_graph_with_a_checkpointer_keeps_the_conversation_and_a_repeated_turn_adds_nothing() -> None:
    async with open_provider(answer=shop) as provider:
        agent = of_library(library_agents.langgraph(provider.url, InMemorySaver()))
        assert agent is not None
        turn = a_turn("Sunday")
        await answer_of(agent, turn)
        await answer_of(agent, turn)
        said = [message for message in provider.requests[-2].body["messages"] if message["role"] == "user"]
    assert len(said) == 1


async def test_a_graphs_chat_model_is_streamed() -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("one two three")]))

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()
    agent = of_library(graph)
    assert agent is not None
    events = [event async for event in agent.run(a_turn("count"))]
    pieces = [event.text for event in events if isinstance(event, Delta)]
    assert len(pieces) > 1 and "".join(pieces) == "one two three"
    assert events[-1] == Done((Reply("one two three"),))


def test_a_graph_without_messages_is_refused_at_the_start() -> None:
    class Count(TypedDict):
        count: int

    graph = StateGraph(Count).add_node("add", lambda state: {"count": 1}).add_edge(START, "add").compile()
    with pytest.raises(ConfigurationError, match="messages"):
        of_library(graph)


def by_piece(text: str) -> Iterator[str]:
    yield "You said: "
    yield text


async def by_piece_async(text: str) -> AsyncIterator[str]:
    for piece in by_piece(text):
        yield piece


def of_the_turn(turn: Turn) -> Iterator[str]:
    yield from by_piece(turn.mail[0].text)


class ByPiece:
    def __call__(self, text: str) -> Iterator[str]:
        yield from by_piece(text)


@pytest.mark.parametrize("function", [by_piece, by_piece_async, of_the_turn, ByPiece()])
async def test_a_callable_that_yields_text_streams_its_answer(function: Any) -> None:
    events: list[Event] = [event async for event in from_function(function).run(a_turn("hello"))]
    assert [event.text for event in events if isinstance(event, Delta)] == ["You said: ", "hello"]
    assert events[-2:] == [Row(Entry("assistant", "You said: hello")), Done((Reply("You said: hello"),))]


async def test_a_callable_whose_parameters_cannot_be_seen_is_given_the_text() -> None:
    assert (await answer_of(from_function(str), a_turn("hello"))).replies == (Reply("hello"),)


async def test_a_function_that_takes_nothing_is_an_agent_whose_turns_fail() -> None:
    agent = from_function(lambda: "hi")
    with pytest.raises(TypeError, match="positional argument"):
        await answer_of(agent, a_turn("hello"))


async def test_a_generator_that_yields_something_else_is_a_fault() -> None:
    def wrong(text: str) -> Iterator[Any]:
        yield 1

    with pytest.raises(AgentFault, match="int"):
        await answer_of(from_function(wrong), a_turn("hello"))


async def test_a_generator_that_blocks_blocks_nobody_else() -> None:
    go_on = threading.Event()

    def slow(text: str) -> Iterator[str]:
        go_on.wait(SECONDS)
        yield "late"

    task = asyncio.create_task(answer_of(from_function(slow), a_turn("hello")))
    assert (await answer_of(from_function(by_piece), a_turn("quick"))).replies[0].text == "You said: quick"
    go_on.set()
    assert (await task).replies == (Reply("late"),)


def test_no_library_is_imported_until_an_agent_of_it_is_plugged_in() -> None:
    script = (
        "import sys\n"
        "from workers.agents.resolve import resolve\n"
        "resolve('echo')\n"
        "print([name for name in ('pydantic_ai', 'agents', 'langgraph', 'mcp', 'openai') if name in sys.modules])\n"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
