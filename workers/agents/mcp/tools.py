"""A tool of an MCP server as one of the agent's own. What a server says is data: no word of it is an instruction to us."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mcp_types
import orjson
from mcp import MCPError

from shared.agent.steps import Effect
from workers.agents.mcp.server import SupervisedServer, ToolFailed
from workers.agents.model.contract import ToolSpec
from workers.agents.tools.arguments import read_object
from workers.agents.tools.tool import CallContext, Tool

NAME_CHARACTERS = 64
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")


class McpTool(Tool):
    """A tool that another process runs. The server checks the arguments."""

    def __init__(self, server: SupervisedServer, tool: str, spec: ToolSpec, effect: Effect) -> None:
        self._server = server
        self._tool = tool
        self.spec = spec
        self.effect = effect

    def arguments(self, written: str) -> dict[str, Any]:
        return read_object(written)

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """What the tool returns, as text. ToolFailed where it says that it failed, ServerAway where its server is away."""
        try:
            result = await self._server.call(self._tool, dict(arguments), context.key)
        except MCPError as error:
            raise ToolFailed(error.message) from None
        text = "\n".join(map(_as_text, result.content))
        if not text and result.structured_content is not None:
            text = orjson.dumps(result.structured_content).decode()
        if result.is_error:
            raise ToolFailed(text)
        return text


def tools_of(server: SupervisedServer, found: Mapping[str, mcp_types.Tool]) -> list[McpTool]:
    """The tools that the settings let through, as `server__tool`."""
    config = server.config
    chosen = [tool for name, tool in found.items() if not config.tools or name in config.tools]
    made: dict[str, McpTool] = {}
    for tool in chosen:
        shown_as = f"{server.name}__{_UNFIT.sub('_', tool.name)}"[:NAME_CHARACTERS]
        made.setdefault(shown_as, McpTool(server, tool.name, server.spec(tool, shown_as), _effect(server, tool)))
    return list(made.values())


def _effect(server: SupervisedServer, tool: mcp_types.Tool) -> Effect:
    """What the settings say; what the server says only where it is trusted."""
    if named := server.config.effects.get(tool.name):
        return Effect(named)
    hints = tool.annotations
    is_read = server.config.trusted and hints is not None and bool(hints.read_only_hint)
    return Effect.READ if is_read else Effect.WRITE


def _as_text(block: mcp_types.ContentBlock) -> str:
    match block:
        case mcp_types.TextContent(text=text):
            return text
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents(text=text)):
            return text
        case mcp_types.ResourceLink(uri=uri):
            return str(uri)
    return f"[{block.type}: not shown]"
