"""Functions that yield their answer piece by piece, as text. One that is not async runs in threads, so it blocks nobody."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from shared.agent.events import Delta, Event
from shared.agent.turn import Turn
from shared.errors import AgentFault
from workers.agents.functions import in_thread, said_in
from workers.agents.spoken import answer_events


class YieldingAgent:
    """A generator function of the text, or of the turn where `takes_turn`. The answer is all that it yields."""

    def __init__(self, function: Callable[[Any], Any], *, takes_turn: bool) -> None:
        self._function = function
        self._takes_turn = takes_turn

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        pieces = self._function(turn if self._takes_turn else said_in(turn))
        said: list[str] = []
        try:
            async for piece in _in_threads(pieces) if isinstance(pieces, Iterator) else pieces:
                if not isinstance(piece, str):
                    raise AgentFault(f"the agent yielded {type(piece).__name__}, and text before or instead")
                said.append(piece)
                yield Delta(piece)
        finally:
            if inspect.isasyncgen(pieces):
                await pieces.aclose()
        for event in answer_events("".join(said)):
            yield event


def yields(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a generator, async or not; objects whose `__call__` does count."""
    call = type(function).__call__
    return any(map(inspect.isgeneratorfunction, (function, call))) or yields_async(function)


def yields_async(function: Callable[..., Any]) -> bool:
    return any(map(inspect.isasyncgenfunction, (function, type(function).__call__)))


async def _in_threads(pieces: Iterator[Any]) -> AsyncIterator[Any]:
    end = object()
    while (piece := await in_thread(lambda pieces: next(pieces, end), pieces)) is not end:
        yield piece
