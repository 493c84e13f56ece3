"""All MCP servers of an agent: which tools there are for a turn, and what people are told of those that are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.errors import Outage
from workers.agents.mcp.server import ServerAway, SupervisedServer
from workers.agents.mcp.tools import McpTool, tools_of

if TYPE_CHECKING:
    from shared.settings.agents import McpServer


class SupervisedServers:
    """The servers of one worker. They belong to the event loop that first asks for their tools."""

    def __init__(self, settings: Mapping[str, McpServer]) -> None:
        self._servers = [SupervisedServer(name, config) for name, config in sorted(settings.items())]
        self._missed: set[str] = set()  # servers whose absence was told

    async def tools(self) -> tuple[list[McpTool], list[str]]:
        """The tools of all servers that answer, always in the same order, and notices about those that have gone since.

        Outage where a server that is required does not answer.
        """
        found = await asyncio.gather(*map(_tools, self._servers))
        notices: list[str] = []
        for server, tools in zip(self._servers, found, strict=True):
            if tools is not None:
                self._missed.discard(server.name)
            elif server.config.required:
                raise Outage(f"the MCP server {server.name} is away", provider=server.name)
            elif server.name not in self._missed:
                self._missed.add(server.name)
                notices.append(f"I have to do without the tools of {server.name} for now: it does not answer.")
        return [tool for tools in found for tool in tools or ()], notices

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))


async def _tools(server: SupervisedServer) -> list[McpTool] | None:
    try:
        return tools_of(server, await server.tools())
    except ServerAway:
        return None
