"""Who we are on a platform, asked before its first request is understood: one question for all requests that wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from shared.errors import Conflict, Denied, Transient, Unavailable

ASK_AGAIN_SECONDS = 3.0  # after the platform did not say who we are


class Introduction:
    """Until it is done, every request is refused: then the platform keeps what it has to say, and brings it again."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        """`ask` asks the platform; Transient, Denied or Conflict where it does not say."""
        self._ask = ask
        self._asking: asyncio.Task[None] | None = None
        self._is_done = False
        self._failure, self._ask_again_at = "", 0.0

    async def require(self) -> None:
        """Unavailable where the platform does not say who we are. Requests that come while it is asked wait for the same
        answer; after a failure they are refused at once for a few seconds."""
        if self._is_done:
            return
        if time.monotonic() >= self._ask_again_at:
            if self._asking is None:
                self._asking = asyncio.create_task(self._asked())
            await asyncio.shield(self._asking)  # a request that ends early leaves the answer to the others
        if not self._is_done:
            raise Unavailable(self._failure)

    async def _asked(self) -> None:
        try:
            await self._ask()
            self._is_done = True
        except (Transient, Denied, Conflict) as error:
            self._failure, self._ask_again_at = str(error), time.monotonic() + ASK_AGAIN_SECONDS
        finally:
            self._asking = None
