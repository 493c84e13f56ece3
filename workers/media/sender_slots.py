"""How many files of one sender are fetched at the same time, so that slow ones leave room for everybody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from shared.messages import Source


@dataclass
class _Waiting:
    slots: asyncio.Semaphore
    count: int = field(default=0)  # files that wait or are being fetched


class SenderSlots:
    """Slots of each sender. A sender with no file under way costs nothing."""

    def __init__(self, of_one: int) -> None:
        self._of_one = of_one
        self._waiting: dict[tuple[str, ...], _Waiting] = {}

    @asynccontextmanager
    async def slot(self, source: Source) -> AsyncIterator[None]:
        """Wait for one of the sender's slots. Whoever is known by no id shares those of their chat."""
        who = (source.platform, source.account, source.user_alt or source.user or f"chat {source.chat}")
        waiting = self._waiting.setdefault(who, _Waiting(asyncio.Semaphore(self._of_one)))
        waiting.count += 1
        try:
            async with waiting.slots:
                yield
        finally:
            waiting.count -= 1
            if not waiting.count:
                del self._waiting[who]
