"""Shows in the chat that a turn is running, on platforms that have a way to show it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from shared.messages import Inbound
from shared.platforms import PLATFORMS
from workers.delivery.sender import MarksRead, Sender, ShowsTyping

FIRST_AFTER_SECONDS = 0.3  # an answer that takes no longer needs no announcement


class TypingIndicator:
    """Tells chats that somebody is writing, through the senders of one process."""

    def __init__(self, senders: Mapping[str, Sender]) -> None:
        self._shows = {
            name: (sender, seconds)
            for name, sender in senders.items()
            if isinstance(sender, ShowsTyping | MarksRead) and (seconds := PLATFORMS[name].typing_seconds) is not None
        }

    def start(self, said: Inbound) -> asyncio.Task[None] | None:
        """Show it from now on, until the task is cancelled. None: there is nothing to show on this platform."""
        shows = self._shows.get(said.source.platform)
        return asyncio.create_task(_show(*shows, said)) if shows is not None else None


async def _show(sender: ShowsTyping | MarksRead, every_seconds: float, said: Inbound) -> None:
    await asyncio.sleep(FIRST_AFTER_SECONDS)
    while True:
        if isinstance(sender, ShowsTyping):
            await sender.typing(said.source.address)
        elif said.message is not None:
            await sender.read(said.source.address, said.message)
        await asyncio.sleep(every_seconds)
