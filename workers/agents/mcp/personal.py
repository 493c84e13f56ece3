"""An MCP server that people reach with tokens of their own: each has a connection or a program for themselves.

A turn gets the tools of the person who asked for it, and those reach the server with that person's token only. Whoever approves a
call, or speaks in the same chat, lends it nothing. Without a token of theirs, people do without the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import SecretStr

from shared.escape import bot_text
from shared.messages import Source
from shared.platforms import FOR_PROGRAMS
from workers.agents.mcp.server import ServerAway, SupervisedServer
from workers.agents.programs.program import Launcher

if TYPE_CHECKING:
    from shared.settings.agents import McpServer

TOKEN = "{token}"  # stands for a person's token in headers and variables


class PersonalServer:
    """One server of the settings with all who have a token for it."""

    def __init__(self, name: str, config: McpServer) -> None:
        self._name = name
        self._config = config
        self._launcher = Launcher()
        self._people: dict[str, SupervisedServer] = {}  # who used it last stands last
        self._of("")  # a program that is not there is found now, and not by the first turn

    def of(self, asker: Source) -> SupervisedServer | None:
        """The server as this person reaches it; None where they have no token."""
        names = [f"{_who_names(asker)}:{id}" for id in (asker.user, asker.user_alt) if id]
        person = next((name for name in names if name in self._config.tokens), None)
        if person is None:
            return None
        server = self._people.pop(person, None) or self._of(self._config.tokens[person].get_secret_value())
        self._people[person] = server
        return server

    async def close(self) -> None:
        for server in self._people.values():
            await server.close()
        self._launcher.close()

    def _of(self, token: str) -> SupervisedServer:
        config = self._config
        own = {"headers": _with_token(config.headers, token), "environment": _with_token(config.environment, token)}
        return SupervisedServer(self._name, config.model_copy(update=own), self._launcher, self._make_room_for)

    def _make_room_for(self, server: SupervisedServer) -> None:
        """End the connection of whoever has not used theirs for longest, if there are too many. They get another when they call.
        ServerAway while as many others call as may."""
        others = [other for other in self._people.values() if other is not server and other.is_open]
        while len(others) >= self._config.most_people:
            idle = next((other for other in others if not other.is_busy), None)
            if idle is None:
                raise ServerAway(f"too many people use the server {self._name} now")
            idle.rest()
            others.remove(idle)


def _who_names(asker: Source) -> str:
    """Whoever gives people their ids: the platform, or the holder of an API key with a name, who knows nobody else's people."""
    return bot_text(asker.platform, asker.account) if asker.platform in FOR_PROGRAMS else asker.platform


def _with_token(texts: dict[str, SecretStr], token: str) -> dict[str, SecretStr]:
    return {name: SecretStr(text.get_secret_value().replace(TOKEN, token)) for name, text in texts.items()}
