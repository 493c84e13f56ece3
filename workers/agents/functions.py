"""Agents that are functions: from text to text, synchronous or not, or an async generator function of the turn."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar, cast

from shared.agent.events import Done, Event
from shared.agent.turn import Result, Turn
from shared.context.shared_thread import after_earlier, spoken
from shared.errors import AgentFault
from shared.messages import Reply
from workers.agents.contract import AnswersWhole, NeedsNoTask

Given = TypeVar("Given")
Returned = TypeVar("Returned")


class FunctionAgent(AnswersWhole):
    """A plain function from text to text. A synchronous one runs in a thread of its own, so it blocks nobody else.

    `is_plain`: the text is what was said and nothing else. Otherwise it names the speaker where several people share the
    conversation, and begins with what the message refers to.
    """

    def __init__(self, function: Callable[[str], str | Awaitable[str]], *, is_plain: bool = False) -> None:
        self._function = function
        self._is_plain = is_plain
        self._is_async = is_coroutine(function)

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        yield Done((await self.answer(turn)).replies)

    async def answer(self, turn: Turn) -> Result:
        text = "\n".join([inbound.text for inbound in turn.mail]) if self._is_plain else said_in(turn)
        if self._is_async:
            answer = await cast("Callable[[str], Awaitable[str]]", self._function)(text)
        else:
            answer = await in_thread(cast("Callable[[str], str]", self._function), text)
        if not isinstance(answer, str):
            raise AgentFault(f"the agent answered {type(answer).__name__}, not str")
        return Result(replies=(Reply(answer),)) if answer else Result()


class OwnFunctionAgent(NeedsNoTask, FunctionAgent):
    """A function of ours."""


class GeneratorAgent:
    """An async generator function of the turn: an Agent without a class."""

    def __init__(self, function: Callable[[Turn], AsyncIterator[Event]]) -> None:
        self._function = function

    def run(self, turn: Turn) -> AsyncIterator[Event]:
        return self._function(turn)


def said_in(turn: Turn) -> str:
    """What was said, with the speaker's name where several people share the conversation, after what it refers to."""
    text = "\n".join([inbound.text for inbound in turn.mail])
    text = spoken(turn.speaker.shown_as, text) if turn.speaker.shown_as else text
    earlier = "\n".join(inbound.earlier for inbound in turn.mail if inbound.earlier)
    return after_earlier(earlier, text) if earlier else text


async def echo(text: str) -> str:
    return f"echo: {text}"


def is_coroutine(function: Callable[..., object]) -> bool:
    """Whether calling it gives something to await; objects with an async `__call__` count."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def in_thread(function: Callable[[Given], Returned], given: Given) -> Returned:
    """Call in a daemon thread: one that hangs past its turn's deadline cannot keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Returned] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not future.done():
            outcome()

    def tell(outcome: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed: the process ends, nobody waits for the answer
            loop.call_soon_threadsafe(settle, outcome)

    def call() -> None:
        try:
            answer = function(given)
        except Exception as error:
            failure = error
            tell(lambda: future.set_exception(failure))
        else:
            tell(lambda: future.set_result(answer))

    threading.Thread(target=call, name="agent", daemon=True).start()
    return await future
