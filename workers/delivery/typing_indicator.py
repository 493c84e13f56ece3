"""Shows in the chat that a turn is running, on platforms that have a way to show it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from shared.agent.turn import Result, Turn
from shared.messages import Source
from workers.agents.contract import Agent
from workers.delivery import Sender

FIRST_AFTER_SECONDS = 0.3  # an answer that takes no longer needs no announcement
EVERY_SECONDS = 4.0  # Telegram's lasts five


@runtime_checkable
class ShowsTyping(Protocol):
    async def typing(self, source: Source) -> None:
        """Show it for some seconds. Never fails, never takes long."""


class TypingAgent:
    """The same agent, with the chat told while it runs."""

    def __init__(self, agent: Agent, senders: Mapping[str, Sender]) -> None:
        self._agent = agent
        self._shows = {name: sender for name, sender in senders.items() if isinstance(sender, ShowsTyping)}

    async def run(self, turn: Turn) -> Result:
        source = turn.mail[-1].source
        sender = self._shows.get(source.platform)
        if sender is None:
            return await self._agent.run(turn)
        showing = asyncio.create_task(_show(sender, source))
        try:
            return await self._agent.run(turn)
        finally:
            showing.cancel()


async def _show(sender: ShowsTyping, source: Source) -> None:
    await asyncio.sleep(FIRST_AFTER_SECONDS)
    while True:
        await sender.typing(source)
        await asyncio.sleep(EVERY_SECONDS)
