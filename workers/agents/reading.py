"""Reads an agent's events: the one place for deadline, stop, back-pressure and legal endings.

An agent is asked for its next event when the last one was taken in, so it is never ahead of its reader. One that may yield
inside a task group or a timeout runs in a task of its own: what those cancel is then this task, and no commit.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace

from shared import log
from shared.agent.events import Event
from shared.agent.turn import Result, Turn
from shared.errors import AgentFault, Stopped
from workers.agents.contract import Agent, AnswersWhole, NeedsNoTask, StartsFirst
from workers.agents.heard import Heard

EVENTS_AT_ONCE = 64  # then others get their turn, also if the agent itself never waits for anything
CLOSE_SECONDS = 5.0  # for an agent to end when it is closed where it yielded
CANCELLED_ITSELF = "the agent cancelled the task that reads it: it must not yield inside a task group or a timeout"


class Reading:
    """One turn of an agent as it is read. Used once."""

    __slots__ = ("_agent", "_heard", "_is_stopped", "_seen", "_task", "_turn")

    def __init__(self, agent: Agent | StartsFirst, turn: Turn, seen: Callable[[Event], None] | None = None) -> None:
        """`seen` is called with each event that was taken in. It must not raise."""
        self._agent = agent
        self._turn = turn
        self._seen = seen
        self._heard = Heard(turn.rows, turn.inbox.given)
        self._is_stopped = False
        self._task: asyncio.Task[None] | None = None  # the task that reads

    def stop(self) -> None:
        """The user wants this to end. An agent that has its answer ready all the same keeps it. Safe to repeat: a second
        cancellation would count as the worker's end."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def result(self) -> Result:
        """Read to the end. Raises what the agent raises, TimeoutError at `Turn.deadline`, AgentFault where it breaks its
        contract, and Stopped with what is kept. However this ends, the agent has ended too."""
        if self._is_stopped:
            raise Stopped(self._heard.cut_short())
        try:
            if isinstance(self._agent, NeedsNoTask):
                await self._read_here()
            else:
                await self._read_in_a_task()
            return self._heard.result()
        except Stopped:
            raise
        except Exception as error:
            if self._is_stopped:  # whatever the agent did when it was cancelled: the user wanted it to end
                raise Stopped(self._heard.cut_short()) from error
            raise

    def so_far(self) -> Result:
        """What the agent has said and used, where it did not end as it should."""
        return self._heard.cut_short()

    async def _read_here(self) -> None:
        task = self._task = asyncio.current_task()
        assert task is not None  # coroutines run in tasks
        try:
            await self._read()
        except asyncio.CancelledError:
            if not self._is_stopped or task.cancelling() > 1:  # not the stop alone: the worker ends, or lost the key
                raise
            raise Stopped(self._heard.cut_short()) from None
        finally:
            self._task = None
            if self._is_stopped:
                task.uncancel()

    async def _read_in_a_task(self) -> None:
        ours = asyncio.current_task()
        assert ours is not None
        task = self._task = asyncio.create_task(self._read())
        try:
            await task  # a cancellation of ours goes to the task, and comes back when that has ended
        except asyncio.CancelledError:
            if ours.cancelling():
                raise
            if self._is_stopped:
                raise Stopped(self._heard.cut_short()) from None
            raise AgentFault(CANCELLED_ITSELF) from None
        finally:
            self._task = None

    async def _read(self) -> None:
        agent, turn = self._agent, self._turn
        if isinstance(agent, StartsFirst):
            seconds = turn.deadline - time.monotonic()
            async with agent.started() as ready:
                await self._events(ready, replace(turn, deadline=time.monotonic() + seconds))
        else:
            await self._events(agent, turn)

    async def _events(self, agent: Agent, turn: Turn) -> None:
        take, seen, count = self._heard.take, self._seen, 0
        seconds = None if turn.deadline == math.inf else turn.deadline - time.monotonic()
        async with asyncio.timeout(seconds):
            if isinstance(agent, AnswersWhole):
                self._heard.take_whole(await agent.answer(turn))
                return
            events = agent.run(turn)
            if not isinstance(events, AsyncIterator):
                raise AgentFault(f"run(turn) gave {type(events).__name__}: it must be an async generator")
            try:
                async for event in events:
                    take(event)
                    if seen is not None:
                        seen(event)
                    count += 1
                    if not count % EVENTS_AT_ONCE:
                        await asyncio.sleep(0)
            except BaseException:
                await _close(events)
                raise


async def _close(events: AsyncIterator[Event]) -> None:
    """Let the agent clean up where it yielded last. An agent that has raised has ended already."""
    if not isinstance(events, AsyncGenerator):
        return
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await events.aclose()
    except Exception as error:  # the turn ends as it was to end, whatever the agent does then
        log.get().warning("agent not closed", error=type(error).__name__)
