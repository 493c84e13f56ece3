"""All MCP servers of an agent: which tools there are for a turn, and what people are told of those that are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.errors import Outage
from shared.messages import Source
from workers.agents.mcp.personal import PersonalServer
from workers.agents.mcp.server import ServerAway, SupervisedServer
from workers.agents.mcp.tools import McpTool, tools_of

if TYPE_CHECKING:
    from shared.settings.agents import McpServer


class SupervisedServers:
    """The servers of one worker. They belong to the event loop that first asks for their tools."""

    def __init__(self, settings: Mapping[str, McpServer]) -> None:
        self._servers = {
            name: PersonalServer(name, config) if config.tokens else SupervisedServer(name, config)
            for name, config in sorted(settings.items())
        }
        self._required = {name for name, config in settings.items() if config.required}
        self._missed: set[SupervisedServer] = set()  # whose absence was told: everybody's, or a person's own

    async def tools(self, asker: Source) -> tuple[list[McpTool], list[str]]:
        """The tools of all servers that answer this person, always in the same order, and notices about those that have gone since.

        Outage where a server that is required does not answer.
        """
        reached = [each.of(asker) if isinstance(each, PersonalServer) else each for each in self._servers.values()]
        found = await asyncio.gather(*map(_tools, reached))
        notices: list[str] = []
        for name, server, tools in zip(self._servers, reached, found, strict=True):
            if server is None:  # they have no token: what others are told does not change
                continue
            if tools is not None:
                self._missed.discard(server)
            elif name in self._required:
                raise Outage(f"the MCP server {name} is away", provider=name)
            elif server not in self._missed:
                self._missed.add(server)
                notices.append(f"I have to do without the tools of {name} for now: it does not answer.")
        return [tool for tools in found for tool in tools or ()], notices

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))


async def _tools(server: SupervisedServer | None) -> list[McpTool] | None:
    """None: it does not answer."""
    try:
        return tools_of(server, await server.tools()) if server is not None else []
    except ServerAway:
        return None
