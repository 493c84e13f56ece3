"""Keyturn's own tools in an isolated turn: the model calls them in its process, and the worker carries them out.

The process sends frames `{"tool":{"id",…}}`, with one of these, and the worker answers with the same `id`:

| the process asks | the worker answers |
|---|---|
| `list` | `{"id","tools":[{"name","description","schema","effect"}]}` |
| `run`: a tool's name, the arguments as JSON, and the step's key | `{"id","text"}`; `{"id","not_run"}`: why not; or `{"id","raised":[kind,text]}` |

Whose rights a call has is the worker's to say: it knows the turn. Where the pipeline has to decide on an error, for example because a
store is away, the worker raises it and ends the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import orjson

from shared.agent.steps import Effect, NotRun
from shared.agent.turn import Turn
from shared.codec import encode_json
from shared.errors import AgentFault, PipelineError
from shared.failpoints import reach
from workers.agents.model.contract import ToolSpec
from workers.agents.remote_line import WorkerLine
from workers.agents.tools.arguments import WrongArguments, read_object
from workers.agents.tools.tool import CallContext, Tool, as_text, context_of

SUBJECT = "tool"


class RemoteTool(Tool):
    """A tool of the worker's, in an isolated process. The worker checks the arguments."""

    def __init__(self, line: WorkerLine, spec: ToolSpec, effect: Effect) -> None:
        self._line = line
        self.spec = spec
        self.effect = effect

    def arguments(self, written: str) -> dict[str, Any]:
        return read_object(written)

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """What the tool gives. Raises what it raised."""
        asked = {"name": self.name, "arguments": orjson.dumps(arguments).decode(), "key": context.key}
        match await self._line.ask(SUBJECT, {"run": asked}):
            case {"text": str(text)}:
                return text
            case {"not_run": str(why)}:
                raise NotRun(why)
            case {"raised": [str(kind), str(text)]}:
                _raise(kind, text)
        raise AgentFault(f"the worker said nothing of {self.name}")


async def remote_tools(line: WorkerLine) -> list[RemoteTool]:
    """The tools that the worker offers to this process."""
    answer = await line.ask(SUBJECT, {"list": {}})
    return [
        RemoteTool(line, ToolSpec(one["name"], one["description"], one["schema"]), Effect(one["effect"]))
        for one in answer["tools"]
    ]


class OfferedTools:
    """The worker's side: the tools that isolated processes may call."""

    def __init__(self, tools: Sequence[Tool] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}

    async def answered(self, asked: Mapping[str, Any], turn: Turn) -> bytes:
        """Do what a process asks for, and give the answer to send. AgentFault for what no process of ours sends."""
        match asked:
            case {"id": int(id), "list": _}:
                return encode_json({"id": id, "tools": [_described(tool) for tool in self._tools.values()]})
            case {"id": int(id), "run": {"name": str(name), "arguments": str(written), "key": str(key)}}:
                return encode_json({"id": id, **await self._run(name, written, context_of(turn, key))})
        raise AgentFault("the isolated process sent an unknown frame about a tool")

    async def _run(self, name: str, written: str, context: CallContext) -> dict[str, Any]:
        tool = self._tools.get(name)
        if tool is None:
            return {"not_run": f"Not run: there is no tool {name!r:.80}."}
        try:
            arguments = tool.arguments(written)
        except WrongArguments as error:
            return {"not_run": f"Not run: the arguments are wrong. {error}"}
        reach("isolated.before_tool")
        try:
            text = as_text(await tool.run(arguments, context))
        except NotRun as error:
            return {"not_run": str(error)}
        except PipelineError:
            raise
        except Exception as error:  # a tool's own error is an outcome that the model reads
            return {"raised": [type(error).__name__, str(error)]}
        reach("isolated.after_tool")
        return {"text": text}


def _described(tool: Tool) -> dict[str, Any]:
    spec = tool.spec
    return {
        "name": spec.name,
        "description": spec.description,
        "schema": spec.schema,
        "effect": tool.effect.value,
    }


def _raise(kind: str, text: str) -> NoReturn:
    """Raise an error of the same name: the model reads it as it would read the tool's own."""
    raise type(kind, (Exception,), {})(text)
