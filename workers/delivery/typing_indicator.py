"""Shows in the chat that a turn is running, on platforms that have a way to show it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from shared.address import Address
from shared.agent.turn import Result, Turn
from shared.platforms import PLATFORMS
from workers.agents.contract import Agent
from workers.delivery.sender import Sender, ShowsTyping

FIRST_AFTER_SECONDS = 0.3  # an answer that takes no longer needs no announcement


class TypingAgent:
    """The same agent, with the chat told while it runs."""

    def __init__(self, agent: Agent, senders: Mapping[str, Sender]) -> None:
        self._agent = agent
        self._shows = {
            name: (sender, seconds)
            for name, sender in senders.items()
            if isinstance(sender, ShowsTyping) and (seconds := PLATFORMS[name].typing_seconds) is not None
        }

    async def run(self, turn: Turn) -> Result:
        source = turn.mail[-1].source
        shows = self._shows.get(source.platform)
        if shows is None:
            return await self._agent.run(turn)
        showing = asyncio.create_task(_show(*shows, source.address))
        try:
            return await self._agent.run(turn)
        finally:
            showing.cancel()


async def _show(sender: ShowsTyping, every_seconds: float, to: Address) -> None:
    await asyncio.sleep(FIRST_AFTER_SECONDS)
    while True:
        await sender.typing(to)
        await asyncio.sleep(every_seconds)
