"""Steps: the tool calls of a turn that must not happen twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from hashlib import blake2b
from typing import Protocol

from shared.agent.events import Call
from shared.errors import PipelineError
from shared.ids import fresh_id
from shared.messages import Entry
from shared.value import value

Do = Callable[[str], Awaitable[str]]  # carries a call out; it is given the step's idempotency key


class Effect(StrEnum):
    """What a call does outside, and so what happens to one whose end nobody saw."""

    READ = "read"  # changes nothing: it runs again
    KEYED = "keyed"  # the other side knows the idempotency key: it runs again with the same one
    WRITE = "write"  # anything else: it does not run again, and the model is told that it may have happened


class How(StrEnum):
    """How a step came by its text."""

    RAN = "ran"
    REUSED = "reused"  # an earlier attempt had finished it
    UNKNOWN = "unknown"  # an earlier attempt began it, and nobody knows how it ended
    SKIPPED = "skipped"  # it was not run, and `text` says why


@value
class Stepped:
    """The outcome of a call: what the model reads of it."""

    text: str
    ok: bool
    how: How


class NotRun(Exception):
    """Raised by what is to carry a call out, before it does anything: the text says why, for the model."""


class Steps(Protocol):
    """The tool calls of one turn. A tool that is called without it works, and may run twice after a crash."""

    async def response(self, row: Entry) -> None:
        """Write down an assistant row with its calls, before any of them runs."""

    async def call(self, call: Call, do: Do, effect: Effect = Effect.WRITE) -> Stepped:
        """Carry out a call, or give the outcome of the attempt that did. Raises Superseded where the turn is another's."""


@value
class BegunStep:
    """A call that may be carried out now."""

    n: int  # its place in the run
    key: str  # its idempotency key


class StepLog(Protocol):
    """Where steps are written down. Every method raises Superseded where the turn is another's."""

    async def response(self, row: Entry) -> None:
        """Write down an assistant row with its calls."""

    async def begin(self, call: Call, effect: Effect) -> BegunStep | Stepped:
        """Write down that a call begins; or its outcome, where it is not to be carried out."""

    async def end(self, begun: BegunStep, stepped: Stepped) -> None:
        """Write down how a call ended."""


class LoggedSteps:
    """Steps over a log: each call is carried out here, between two entries of the log."""

    __slots__ = ("log",)

    def __init__(self, log: StepLog) -> None:
        self.log = log

    async def response(self, row: Entry) -> None:
        await self.log.response(row)

    async def call(self, call: Call, do: Do, effect: Effect = Effect.WRITE) -> Stepped:
        """A tool's own error is an outcome that the model reads; a PipelineError is for the pipeline."""
        begun = await self.log.begin(call, effect)
        if isinstance(begun, Stepped):
            return begun
        try:
            stepped = Stepped(await do(begun.key), ok=True, how=How.RAN)
        except PipelineError:
            raise
        except NotRun as error:
            stepped = Stepped(str(error), ok=False, how=How.SKIPPED)
        except Exception as error:
            stepped = Stepped(f"{call.name} failed: {type(error).__name__}: {error}", ok=False, how=How.RAN)
        await self.log.end(begun, stepped)
        return stepped


class UnrecordedSteps(LoggedSteps):
    """Steps of which nothing is written down: every call runs, and a turn that is tried again runs its calls again.

    The idempotency key is the same on every attempt as long as the calls come in the same order, so a keyed tool does
    its work once. Without a run, no key comes twice.
    """

    __slots__ = ()

    def __init__(self, run: str = "") -> None:
        super().__init__(_NoLog(run))


class _NoLog:
    def __init__(self, run: str) -> None:
        self._run = run
        self._count = 0

    async def response(self, row: Entry) -> None:
        """Nothing is written down."""

    async def begin(self, call: Call, effect: Effect) -> BegunStep | Stepped:
        self._run, self._count = self._run or fresh_id(), self._count + 1
        return BegunStep(self._count, step_key(self._run, self._count))

    async def end(self, begun: BegunStep, stepped: Stepped) -> None:
        """Nothing is written down."""


def step_key(run: str, n: int) -> str:
    """The idempotency key of a run's n-th step."""
    return f"step_{blake2b(f'{run}:{n}'.encode(), digest_size=15).hexdigest()}"
