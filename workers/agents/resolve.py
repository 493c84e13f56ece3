"""From what a setting names to an Agent: the built-in ones, and anything of the user's that can be made one."""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from shared.agent.turn import Turn
from shared.errors import ConfigurationError
from workers.agents.adapters.choice import of_library
from workers.agents.adapters.text import YieldingAgent, yields, yields_async
from workers.agents.contract import Agent, Answers
from workers.agents.functions import FunctionAgent, GeneratorAgent, OwnFunctionAgent, echo, in_thread, is_coroutine
from workers.agents.named import BUILT_IN, module_and_object
from workers.agents.results import ResultAgent

if TYPE_CHECKING:
    from shared.settings import Settings

KINDS = "a function from text to text, a generator function, an object with run(turn), or an agent of a known library"


def resolve(name: str, config: Settings | None = None) -> Agent:
    """The agent that a setting names; a ConfigurationError says what is wrong with it. Models cost nothing until named."""
    if name == "echo":
        return OwnFunctionAgent(echo, is_plain=True)
    if name in BUILT_IN:
        return _built_in(name, config)
    module_name, attribute = module_and_object(name)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigurationError(f"AGENT={name}: {error}{_place(error)}") from None
    except Exception as error:  # the module is the user's: importing it may raise anything
        text = f"AGENT={name}: importing {module_name} raised {type(error).__name__}: {error}{_place(error)}"
        raise ConfigurationError(text) from None
    try:
        target: Any = getattr(module, attribute)
    except AttributeError as error:  # perhaps it is an installed module with the name of the user's
        raise ConfigurationError(f"AGENT={name}: {error}: {module!r}") from None
    if (agent := of_library(target)) is not None:
        return agent
    if hasattr(target, "run"):
        return adapted(_made(name, target) if inspect.isclass(target) else target)
    if callable(target):
        return from_function(target)
    raise ConfigurationError(f"AGENT={name}: it must be {KINDS}")


def _made(name: str, kind: type[Any]) -> Any:
    try:
        return kind()
    except Exception as error:  # the class is the user's: it may want arguments, and raise anything
        text = f"AGENT={name}: {kind.__name__}() raised {type(error).__name__}: {error}{_place(error)}"
        raise ConfigurationError(text) from None


def adapted(target: Agent | Answers) -> Agent:
    """The object as an Agent: one whose `run` is a coroutine gets its events from the result."""
    if inspect.iscoroutinefunction(target.run):
        return ResultAgent(cast("Answers", target).run, target)
    return cast("Agent", target)


def from_function(function: Callable[..., Any]) -> Agent:
    """The function as an Agent. One whose first parameter is annotated as a `Turn` is given the turn and returns a
    `Result`; any other is given the text and returns text. One that yields is given the text where that parameter is
    annotated as `str`, and yields text. An async one that is not is given the turn, and yields events."""
    first = _first_annotation(function)
    if yields_async(function):
        return YieldingAgent(function, takes_turn=False) if first == "str" else GeneratorAgent(function)
    if yields(function):
        return YieldingAgent(function, takes_turn=first == Turn.__name__)
    if first != Turn.__name__:
        return FunctionAgent(function)
    return ResultAgent(function if is_coroutine(function) else lambda turn: in_thread(function, turn))


def _first_annotation(function: Callable[..., Any]) -> str:
    """The name of the type that the first parameter is annotated with; empty where it is not."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except (TypeError, ValueError):  # built-in functions have no signature
        return ""
    if first is None or first.annotation is first.empty:
        return ""
    if isinstance(first.annotation, str):  # as written, under `from __future__ import annotations`
        return first.annotation.rpartition(".")[2]
    return getattr(first.annotation, "__name__", "")


def _place(error: Exception) -> str:
    """Where in the user's code it was raised; empty where that was not reached, or the error says so itself."""
    if isinstance(error, SyntaxError):
        return ""
    ours = (__file__, importlib.__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in ours]
    theirs = [frame for frame in frames if not frame.filename.startswith("<frozen ")]
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""


def _built_in(name: str, config: Settings | None) -> Agent:
    from shared import settings

    config = config or settings.load()
    match name:
        case "command":
            from workers.agents.command import CommandAgent

            return CommandAgent(config.command)
        case "http":
            from workers.agents.http import open_http_agent

            return open_http_agent(config.http, config.llm, config.zone)
        case "local":
            from workers.agents.local import LocalAgent

            return LocalAgent(config.llm, zone=config.zone)
        case _:
            from workers.agents.llm import LlmAgent

            return LlmAgent(config.llm, zone=config.zone)
