"""Agents that yield no events and return a result instead: a coroutine, or an object whose `run` is one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from shared.agent.events import Done, Event, Row, Spent
from shared.agent.turn import Result, Turn
from shared.errors import AgentFault
from shared.messages import Entry, Reply
from workers.agents.capabilities import Adapter
from workers.agents.contract import AnswersWhole


class ResultAgent(Adapter, AnswersWhole):
    """An agent made of a coroutine from a turn to a `Result`. `original` is the object that offers it."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Callable[[Turn], Awaitable[Result]], original: object = None) -> None:
        super().__init__(original)
        self._answer = answer

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        for event in events_of(await self.answer(turn)):
            yield event

    async def answer(self, turn: Turn) -> Result:
        result = await self._answer(turn)
        if not isinstance(result, Result):
            raise AgentFault(f"the agent returned {type(result).__name__}, not Result")
        return result


def events_of(result: Result) -> Iterator[Event]:
    """The events of an agent that says all of it at the end."""
    yield from map(Row, result.entries)
    yield from map(Spent, result.spent)
    if result.asks:
        yield from result.asks
    else:
        yield Done(result.replies)


def answered(text: str) -> Result:
    """One assistant row, and the same text for the chat. An empty answer says nothing."""
    return Result((Entry("assistant", text),), (Reply(text),)) if text else Result()
