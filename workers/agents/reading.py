"""Reads an agent's events: the one place for deadline, stop, back-pressure and legal endings.

An agent is asked for its next event when the last one was taken in, so it is never ahead of its reader. One that may yield
inside a task group or a timeout runs in a task of its own: what those cancel is then this task, and no commit. So does one that
may go on when it is cancelled: its turn ends without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace

from shared import log
from shared.agent.events import Event
from shared.agent.turn import Result, Turn
from shared.errors import AgentFault, Stopped
from shared.messages import Entry
from workers.agents.contract import Agent, AnswersWhole, NeedsNoTask, StartsFirst
from workers.agents.heard import Heard

EVENTS_AT_ONCE = 64  # then others get their turn, also if the agent itself never waits for anything
CLOSE_SECONDS = 5.0  # for an agent to end when it is closed where it yielded, or its time is over
STOP_SECONDS = 0.5  # for an agent to end when its user stopped it: they see it end within a second
CANCELLED_ITSELF = "the agent cancelled the task that reads it: it must not yield inside a task group or a timeout"


_left_behind: set[asyncio.Task[None]] = set()  # agents that go on though they were cancelled


def left_behind() -> int:
    """How many agents of this process go on though their turns have ended. The process cannot wait for them."""
    return len(_left_behind)


class Reading:
    """One turn of an agent as it is read. Used once."""

    __slots__ = ("_agent", "_heard", "_is_left", "_is_over", "_is_stopped", "_seen", "_task", "_turn")

    def __init__(
        self,
        agent: Agent | StartsFirst,
        turn: Turn,
        seen: Callable[[Event], None] | None = None,
        took: Sequence[str] = (),
    ) -> None:
        """`seen` is called with each event that was taken in. It must not raise. `took` names the mail that `turn.rows` show."""
        self._agent = agent
        self._turn = turn
        self._seen = seen
        self._heard = Heard(turn.rows, turn.inbox.given, took)
        self._is_stopped = False
        self._is_left = False  # its turn has ended, and it has not
        self._task: asyncio.Task[None] | None = None  # the task that reads
        self._is_over: asyncio.Future[None] | None = None  # done when that task has ended, or is waited for no longer

    def stop(self) -> None:
        """The user wants this to end. An agent that has its answer ready all the same keeps it. Safe to repeat: a second
        cancellation would count as the worker's end."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            asyncio.get_running_loop().call_later(STOP_SECONDS, self._wait_no_longer)

    async def result(self) -> Result:
        """Read to the end. Raises what the agent raises, TimeoutError at `Turn.deadline`, AgentFault where it breaks its
        contract, and Stopped with what is kept. However this ends, the agent has ended too, or it goes on when it is
        cancelled: then nothing of what it says is heard, and its steps are refused."""
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

    @property
    def shown(self) -> Sequence[Entry]:
        """The rows of the mail that the agent took in, in order. It grows while the agent runs."""
        return self._heard.shown

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
        loop, task = asyncio.get_running_loop(), asyncio.create_task(self._read())
        self._task, self._is_over = task, loop.create_future()
        task.add_done_callback(self._wait_no_longer)
        seconds = self._turn.deadline - time.monotonic() + CLOSE_SECONDS
        last = loop.call_later(seconds, self._wait_no_longer) if self._has_deadline() else None
        try:
            await self._end_of(task)
        except asyncio.CancelledError:
            if ours.cancelling():
                raise
            if self._is_stopped:
                raise Stopped(self._heard.cut_short()) from None
            raise AgentFault(CANCELLED_ITSELF) from None
        finally:
            self._task = None
            if last is not None:
                last.cancel()

    async def _end_of(self, task: asyncio.Task[None]) -> None:
        """Wait until the task has ended, and give its outcome. One that does not end when it is cancelled is left behind."""
        assert self._is_over is not None
        try:
            await self._is_over
        except asyncio.CancelledError:  # ours: it goes on to the task
            await _cancelled(task)
            if not task.done():
                self._leave_behind(task)
                raise
        if task.done():
            task.result()
            return
        self._leave_behind(task)
        if self._is_stopped:
            raise Stopped(self._heard.cut_short())
        raise TimeoutError

    def _wait_no_longer(self, task: asyncio.Task[None] | None = None) -> None:
        if self._is_over is not None and not self._is_over.done():
            self._is_over.set_result(None)

    def _leave_behind(self, task: asyncio.Task[None]) -> None:
        log.get().error(
            "the agent goes on though it was cancelled: its turn ends without it", key=self._turn.session_key
        )
        self._is_left = True
        _left_behind.add(task)
        task.add_done_callback(_forget)

    def _has_deadline(self) -> bool:
        return self._turn.deadline != math.inf and not isinstance(self._agent, StartsFirst)

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
                    if self._is_left:
                        await _close(events)
                        return
                    take(event)
                    if seen is not None:
                        seen(event)
                    count += 1
                    if not count % EVENTS_AT_ONCE:
                        await asyncio.sleep(0)
            except BaseException:
                await _close(events)
                raise


async def _cancelled(task: asyncio.Task[None]) -> None:
    """Cancel the task, and again whenever we are, until it has ended or had time enough."""
    loop = asyncio.get_running_loop()
    until = loop.time() + CLOSE_SECONDS
    while not task.done() and (seconds := until - loop.time()) > 0:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=seconds)


def _forget(task: asyncio.Task[None]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()  # nobody else asks for it


async def _close(events: AsyncIterator[Event]) -> None:
    """Let the agent clean up where it yielded last. An agent that has raised has ended already."""
    if not isinstance(events, AsyncGenerator):
        return
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await events.aclose()
    except Exception as error:  # the turn ends as it was to end, whatever the agent does then
        log.get().warning("agent not closed", error=type(error).__name__)
