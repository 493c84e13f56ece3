"""One request that waits for its answer, from its acceptance until its caller has the answer or is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from producers.api.chat.answer import AnswerEnded, AnswerNews, AnswerWatch
from shared.clock import now_ms
from shared.errors import Unavailable
from shared.lane.stopping import stop
from shared.messages import Inbound
from shared.pipeline import Pipeline


class PendingAnswer:
    """Close it, however it ends. A stateless turn that has no reader any more is stopped; one that has ended is forgotten."""

    def __init__(self, pipe: Pipeline, inbound: Inbound, session_key: str, leave: Callable[[], None]) -> None:
        self._pipe = pipe
        self._inbound = inbound
        self._key = session_key
        self._leave: Callable[[], None] | None = leave
        self._watch = AnswerWatch(pipe, inbound, session_key)
        self._is_accepted = self._has_ended = False

    async def listen(self) -> None:
        """To be called before the message is accepted, so that nothing is missed."""
        await self._watch.open()

    def accepted(self) -> None:
        """From now on there is a turn."""
        self._is_accepted = True

    async def news(self, seconds: float, stopping: asyncio.Event) -> AsyncGenerator[AnswerNews]:
        """What happens until it has ended, for so long at most."""
        async with aclosing(self._watch.news(seconds, stopping)) as heard:
            async for news in heard:
                self._has_ended = self._has_ended or isinstance(news, AnswerEnded)
                yield news

    async def close(self) -> None:
        """May be called twice."""
        if self._leave is None:
            return
        self._leave()
        self._leave = None
        try:
            await self._watch.close()
        finally:
            if self._is_accepted and self._inbound.is_stateless:
                with contextlib.suppress(Unavailable):  # a housekeeper forgets it later
                    await self._end()

    async def _end(self) -> None:
        if self._has_ended:
            await self._pipe.store.stateless.forget(self._inbound.id)
        else:
            await stop(self._pipe.turns, self._key, now_ms(), self._pipe.settings.mailbox_limit)
