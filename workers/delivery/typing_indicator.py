"""Shows in the chat that a turn is running, on platforms that have a way to show it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from shared.errors import BotRefused
from shared.messages import Inbound
from shared.platforms import PLATFORMS
from shared.sending.budgets import REFUSED_WAIT
from workers.delivery.sender import MarksRead, Sender, ShowsTyping

FIRST_AFTER_SECONDS = 0.3  # an answer that takes no longer needs no announcement


class TypingIndicator:
    """Tells chats that somebody is writing, through the senders of one process. A bot that its platform refuses is left alone for
    REFUSED_WAIT: platforms lock out those who go on."""

    def __init__(self, senders: Mapping[str, Sender]) -> None:
        self._refused_until: dict[tuple[str, str], float] = {}  # monotonic, by platform and account
        self._shows = {
            name: (sender, seconds)
            for name, sender in senders.items()
            if isinstance(sender, ShowsTyping | MarksRead) and (seconds := PLATFORMS[name].typing_seconds) is not None
        }

    def start(self, said: Inbound) -> asyncio.Task[None] | None:
        """Show it from now on, until the task is cancelled. None: there is nothing to show on this platform."""
        shows = self._shows.get(said.source.platform)
        return asyncio.create_task(self._show(*shows, said)) if shows is not None else None

    async def _show(self, sender: ShowsTyping | MarksRead, every_seconds: float, said: Inbound) -> None:
        bot = (said.source.platform, said.source.account)
        await asyncio.sleep(FIRST_AFTER_SECONDS)
        while True:
            if time.monotonic() >= self._refused_until.get(bot, 0):
                try:
                    await _show_once(sender, said)
                except BotRefused:
                    self._refused_until[bot] = time.monotonic() + REFUSED_WAIT.total_seconds()
            await asyncio.sleep(every_seconds)


async def _show_once(sender: ShowsTyping | MarksRead, said: Inbound) -> None:
    if isinstance(sender, ShowsTyping):
        await sender.typing(said.source.address)
    elif said.message is not None:
        await sender.read(said.source.address, said.message)
