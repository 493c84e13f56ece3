"""What the pipeline and an agent agree on. The events are in shared/agent/events.py; workers/agents/reading.py reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from shared.agent.events import Event
from shared.agent.turn import Result, Turn


class Agent(Protocol):
    """Something that answers turns, many at the same time."""

    def run(self, turn: Turn) -> AsyncIterator[Event]:
        """Answer the mail. Write it as an async generator, which yields `Done` last.

        Raise Permanent where trying again cannot help; any other error is tried again. A turn that is stopped is
        cancelled where it awaits, and closed where it yields. Do not yield inside a task group or a timeout: those cancel
        the task that reads.
        """


class Answers(Protocol):
    """An agent without events: its `run` is a coroutine. `adapted` in workers/agents/resolve.py makes an Agent of it."""

    async def run(self, turn: Turn) -> Result:
        """Answer the mail. Raises what an Agent raises."""


class NeedsNoTask:
    """Marks agents of ours that never yield inside a task group or a timeout, and that end when they are cancelled. They are
    read without a task of their own, which saves its cost for every plain answer."""

    __slots__ = ()


class AnswersWhole(ABC):
    """An Agent of ours that has no events before it is done. It is asked for its result, which saves a plain answer the cost
    of events."""

    __slots__ = ()

    @abstractmethod
    async def answer(self, turn: Turn) -> Result:
        """The same as the events of `run`."""


class StartsFirst(ABC):
    """Makes an agent for one turn at a time. The turn's deadline begins when that agent is ready."""

    @abstractmethod
    def started(self) -> AbstractAsyncContextManager[Agent]:
        """Wait until the agent can run, and end it with the block."""
