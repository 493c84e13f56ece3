"""The agents: history and mail in, rows and replies out. No Redis, no platform, no SQL."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, cast

from shared.agent.turn import Result, Turn
from shared.context.shared_thread import after_earlier, spoken
from shared.errors import ConfigurationError, Permanent
from shared.messages import Entry, Reply
from shared.value import value

if TYPE_CHECKING:
    from shared.settings import Settings


class Agent(Protocol):
    async def run(self, turn: Turn) -> Result:
        """Answer the mail. Raise Permanent where trying again cannot help; any other error is tried again."""


@value
class Answer:
    """What a model said to one request, and what it cost (see `usage` in workers/agents/llm.py)."""

    text: str
    reasoning: str
    usage: Mapping[str, Any]
    instead_of: str = ""  # the model that was to answer and failed, where another did
    marks: Mapping[str, Any] = field(default_factory=dict)  # what else a row of it keeps: see shared/context/marks.py


class Asks(Protocol):
    """An agent that also answers questions aside: for titles, summaries, and what is worth remembering."""

    async def ask(self, rows: Sequence[Entry], system_prompt: str) -> Answer:
        """One request outside of any turn. Raises what `run` raises."""


def asks(agent: Agent) -> Asks | None:
    """The agent as one that can be asked aside; None where it has no model."""
    return cast("Asks", agent) if hasattr(agent, "ask") else None


def wants_context(agent: Agent | Asks) -> bool:
    """Whether the agent uses `Turn.context`; building it for one that does not would be work for nothing."""
    return bool(getattr(agent, "wants_context", False))


def context_tokens(agent: Asks | Agent, model: str = "") -> int | None:
    """How much the agent's model reads at once, where that is known."""
    known: Callable[[str], int | None] | None = getattr(agent, "context_tokens", None)
    return known(model) if known is not None else None


class Punctual:
    """An agent whose turns have a deadline: TimeoutError when one does not keep it."""

    def __init__(self, agent: Agent, timeout_seconds: float) -> None:
        self._agent = agent
        self._timeout_seconds = timeout_seconds

    async def run(self, turn: Turn) -> Result:
        async with asyncio.timeout(self._timeout_seconds):
            return await self._agent.run(turn)


class Missing:
    """Stands for an agent that the settings no longer name."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def run(self, turn: Turn) -> Result:
        raise Permanent(f"there is no agent {self._name}", "The agent of this conversation is no longer here.")


class FunctionAgent:
    """A plain function from text to text. A synchronous one runs in a thread of its own, so it blocks nobody else.

    `is_plain`: the text is what was said and nothing else. Otherwise it names the speaker where several people share the
    conversation, and begins with what the message refers to.
    """

    def __init__(self, function: Callable[[str], str | Awaitable[str]], *, is_plain: bool = False) -> None:
        self._function = function
        self._is_plain = is_plain
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        )

    async def run(self, turn: Turn) -> Result:
        text = "\n".join(inbound.text for inbound in turn.mail)
        if not self._is_plain:
            text = spoken(turn.speaker.shown_as, text) if turn.speaker.shown_as else text
            earlier = "\n".join(inbound.earlier for inbound in turn.mail if inbound.earlier)
            text = after_earlier(earlier, text) if earlier else text
        if self._is_async:
            answer = await cast("Callable[[str], Awaitable[str]]", self._function)(text)
        else:
            answer = await in_thread(cast("Callable[[str], str]", self._function), text)
        return answered(answer)


async def echo(text: str) -> str:
    return f"echo: {text}"


def answered(text: str) -> Result:
    """One assistant row, and the same text for the chat. An empty answer says nothing."""
    if not isinstance(text, str):
        raise TypeError(f"the agent answered {type(text).__name__}, not str")
    return Result((Entry("assistant", text),), (Reply(text),)) if text else Result()


def resolve(name: str, config: Settings | None = None) -> Agent:
    """The agent that a setting names; a ConfigurationError says what is wrong with it. Models cost nothing until named."""
    if name == "echo":
        return FunctionAgent(echo, is_plain=True)
    if name in ("llm", "local"):
        return _model_agent(name, config)
    module_name, found, attribute = name.partition(":")
    if not found:
        raise ConfigurationError(f"AGENT={name}: not a known agent; use echo, llm, local or module:object")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigurationError(f"AGENT={name}: {error}") from None
    except Exception as error:  # the module is the user's: importing it may raise anything
        text = f"AGENT={name}: importing {module_name} raised {type(error).__name__}: {error}{_place(error)}"
        raise ConfigurationError(text) from None
    try:
        target: Any = getattr(module, attribute)
    except AttributeError as error:  # perhaps it is an installed module with the name of the user's
        raise ConfigurationError(f"AGENT={name}: {error}: {module!r}") from None
    if hasattr(target, "run"):
        return cast("Agent", target() if inspect.isclass(target) else target)
    if callable(target):
        return FunctionAgent(target)
    raise ConfigurationError(f"AGENT={name}: neither a function nor an object with run(turn)")


def _place(error: Exception) -> str:
    """Where in the user's code it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames and not isinstance(error, SyntaxError) else ""
    )


def _model_agent(name: str, config: Settings | None) -> Agent:
    from shared import settings

    config = config or settings.load()
    if name == "llm":
        from workers.agents.llm import LlmAgent

        return LlmAgent(config.llm, zone=config.zone)
    from workers.agents.local import LocalAgent

    return LocalAgent(config.llm, zone=config.zone)


async def in_thread(function: Callable[[str], str], text: str) -> str:
    """Call in a daemon thread: one that hangs past its turn's deadline cannot keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not future.done():
            outcome()

    def call() -> None:
        try:
            answer = function(text)
        except Exception as error:
            failure = error
            loop.call_soon_threadsafe(settle, lambda: future.set_exception(failure))
        else:
            loop.call_soon_threadsafe(settle, lambda: future.set_result(answer))

    threading.Thread(target=call, name="agent", daemon=True).start()
    return await future
