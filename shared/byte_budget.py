"""How many bytes of files a process holds in memory at once, where a library or a protocol wants them whole."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteBudget:
    """Room for so many bytes, given in the order in which it is asked for. What is larger than all of it has it alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Wait until there is room, and keep it until the block ends."""
        if size <= 0:
            yield
            return
        await self._take(size)
        try:
            yield
        finally:
            self._give_back(size)

    async def _take(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            self._used += size
            return
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, given))
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():  # room was given in the same moment
                self._give_back(size)
            raise

    def _give_back(self, size: int) -> None:
        self._used -= size
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            next_size, given = self._waiting.popleft()
            if not given.done():
                self._used += next_size
                given.set_result(None)

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self._most
