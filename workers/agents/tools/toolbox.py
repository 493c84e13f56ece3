"""The tools of an agent: found in the modules that a setting names, and run one call at a time."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import orjson

from shared.agent.events import Call
from shared.agent.steps import Effect, NotRun, Stepped
from shared.agent.turn import Turn
from shared.codec import storable
from shared.errors import ConfigurationError
from workers.agents.model.contract import ToolSpec
from workers.agents.tools.arguments import WrongArguments
from workers.agents.tools.ask_user import is_question
from workers.agents.tools.tool import Tool, as_text, context_of


class Toolbox:
    """The same tools in the same order for every turn, so that the prompt of two turns begins with the same bytes."""

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        seconds: float,
        result_characters: int,
        approve: Iterable[str],
    ) -> None:
        self._tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self._seconds = seconds
        self._approve = tuple(approve)
        self._result_characters = result_characters
        self.specs: tuple[ToolSpec, ...] = tuple([tool.spec for tool in self._tools.values()])

    def has(self, name: str) -> bool:
        """Whether the model is offered a tool of that name."""
        return name in self._tools

    def are_reads(self, calls: Iterable[Call]) -> bool:
        """Whether all of these only read: then they may run at the same time."""
        return all(call.name in self._tools and self._tools[call.name].effect is Effect.READ for call in calls)

    def needs_person(self, call: Call) -> bool:
        """Whether a person has to be asked first. A call that cannot run needs nobody."""
        tool = self._tools.get(call.name)
        if tool is None:
            return False
        if not is_question(call) and not any(fnmatchcase(call.name, pattern) for pattern in self._approve):
            return False
        try:
            tool.arguments(call.arguments)
        except WrongArguments:
            return False
        return True

    async def answered(self, call: Call, turn: Turn, answer: str) -> Stepped:
        """The call is a question to the user, and this is what they said."""

        async def do(key: str) -> str:
            return answer

        return await turn.steps.call(call, do, Effect.READ)

    async def refused(self, call: Call, turn: Turn, why: str) -> Stepped:
        """Leave a call out, which is a step as well: an attempt before this one may have begun it, and then nobody may say that it
        was not run."""

        async def do(key: str) -> str:
            raise NotRun(why)

        return await turn.steps.call(call, do, Effect.READ)

    async def outcome(self, call: Call, turn: Turn) -> Stepped:
        """Carry a call out. Whatever a tool does, its outcome is text for the model; PipelineErrors are the pipeline's.

        A call that cannot run any more is a step as well: an attempt before this one may have begun it.
        """
        tool = self._tools.get(call.name)
        arguments: dict[str, Any] = {}
        refusal = "" if tool is not None else f"Not run: there is no tool {call.name!r:.80}."
        try:
            arguments = tool.arguments(call.arguments) if tool is not None else {}
        except WrongArguments as error:
            refusal = f"Not run: the arguments are wrong. {error}"

        async def do(key: str) -> str:
            if tool is None or refusal:
                raise NotRun(refusal)
            try:
                async with asyncio.timeout(self._seconds) as limit:
                    return as_text(await tool.run(arguments, context_of(turn, key)))
            except TimeoutError:
                if not limit.expired():
                    raise
                raise TimeoutError(f"it took longer than {self._seconds:g} s") from None

        effect = Effect.READ if tool is None or refusal else tool.effect
        stepped = await turn.steps.call(call, do, effect)
        return Stepped(self._fitting(stepped.text), stepped.ok, stepped.how)

    def _fitting(self, text: str) -> str:
        text, most = storable(text), self._result_characters
        if len(text) <= most:
            return text
        return f"{text[:most]}\n[Cut: this is the beginning, {most} of {len(text)} characters.]"


def load_tools(modules: Iterable[str]) -> list[Tool]:
    """The tools of these modules, in the order in which they are written. A ConfigurationError says what is wrong."""
    found: dict[str, Tool] = {}
    for name in modules:
        try:
            module = importlib.import_module(name)
        except Exception as error:  # the module is the user's: importing it may raise anything
            raise ConfigurationError(f"LLM__TOOLS={name}: {type(error).__name__}: {error}") from None
        tools = [item for item in vars(module).values() if isinstance(item, Tool)]
        if not tools:
            raise ConfigurationError(f"LLM__TOOLS={name}: there is no function with @tool in it")
        for tool in tools:
            if found.setdefault(tool.name, tool) is not tool:
                raise ConfigurationError(f"LLM__TOOLS={name}: a second tool with the name {tool.name}")
    return list(found.values())


def is_object(written: str) -> bool:
    """Whether a model's arguments are a whole JSON object: rows with anything else would be refused by providers."""
    try:
        return isinstance(orjson.loads(written), dict)
    except orjson.JSONDecodeError:
        return False
