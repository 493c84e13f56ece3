"""The decorator that makes a function a tool: its name, docstring and type hints are what the model is told of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, overload

from shared.agent.steps import Effect
from shared.agent.turn import Speaker, Turn
from shared.messages import Kind, Source
from shared.schedules.schedule import OUTLET
from shared.value import value
from workers.agents.functions import in_thread, is_coroutine
from workers.agents.model.contract import ToolSpec

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@value
class CallContext:
    """What a tool may know about its call. A parameter with this annotation is given it; the model is not told of it."""

    key: str  # the idempotency key: the same when the same call is tried again
    speaker: Speaker  # on whose behalf it acts
    session_key: str
    run: str
    source: Source  # where it was asked, and by whom
    is_scheduled: bool = False  # a schedule asked, and nobody waits for the answer
    asked_at: int = 0  # when the message was received that it answers, wall clock, ms
    event_id: str = ""  # of that message


def asker_of(turn: Turn) -> Source:
    """On whose behalf the tools of a turn act. Whoever approves a call does not lend it their rights."""
    return turn.asker or turn.mail[-1].asker


def context_of(turn: Turn, key: str) -> CallContext:
    """What a tool may know about a call of this turn with this idempotency key."""
    asked, asker = turn.mail[-1], asker_of(turn)
    is_scheduled = asked.kind is Kind.FIRE or asker.platform == OUTLET  # or it follows from one
    about = (turn.session_key, turn.run, asker, is_scheduled, asked.received_at, asked.event_id)
    return CallContext(key, turn.speaker, *about)


class Tool:
    """A function that a model may call. Calling it calls the function."""

    def __init__(self, function: Callable[..., Any], effect: Effect) -> None:
        self._function = function
        self._is_async = is_coroutine(function)
        self.effect = effect
        name, described = getattr(function, "__name__", ""), inspect.getdoc(function)
        if not _NAME.fullmatch(name):
            raise TypeError(f"a tool cannot be called {name!r:.80}: its name has letters, digits, _ and - only")
        if not described:
            raise TypeError(f"the tool {name} needs a docstring: the model reads it")
        from workers.agents.tools.arguments import Arguments  # only here: agents without tools need not load pydantic

        self._arguments = Arguments(name, function, CallContext)
        self.spec = ToolSpec(name, described, self._arguments.schema())

    @property
    def name(self) -> str:
        return self.spec.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def arguments(self, written: str) -> dict[str, Any]:
        """The arguments that the model wrote as JSON, as the function's types want them. WrongArguments otherwise."""
        return self._arguments.read(written)

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> Any:
        """What the function returns. One that is not async runs in a thread of its own."""
        given = {**arguments, **dict.fromkeys(self._arguments.filled_in, context)}
        if self._is_async:
            return await self._function(**given)
        return await in_thread(lambda given: self._function(**given), given)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(*, effect: Effect | str = ...) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, *, effect: Effect | str = Effect.WRITE) -> Any:
    """Make a function a tool. `effect` says what it does outside, and so what happens to a call whose end nobody saw:
    `read` and `keyed` tools run again, a `write` tool does not. TypeError where the function cannot be one."""
    if function is not None:
        return Tool(function, Effect(effect))
    return lambda function: Tool(function, Effect(effect))


def as_text(returned: Any) -> str:
    """What a tool returned, as the model reads it."""
    if returned is None:
        return ""
    if isinstance(returned, str):
        return returned
    from pydantic_core import to_json  # only here: agents without tools need not load pydantic

    return to_json(returned, fallback=str).decode()
