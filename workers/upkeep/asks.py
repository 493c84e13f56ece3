"""Questions whose time is over: each ends by mail, which takes its run up. Questions that ended long ago are forgotten."""

from __future__ import annotations

from shared.clock import now_ms
from shared.codec import message_id
from shared.door import accept
from shared.messages import Inbound
from shared.pipeline import Pipeline
from workers.turn.question import EXPIRED

AT_ONCE = 200
KEPT_MS = 30 * 24 * 3_600_000  # after its end, somebody who answers late is told how it ended


class OverdueQuestions:
    """Sends one message for each such question. Its id follows from the question, so several housekeepers send one."""

    def __init__(self, pipe: Pipeline) -> None:
        self.every_seconds = pipe.settings.sweep_seconds
        self._pipe = pipe

    async def look(self) -> float:
        """Send the mail of the questions that are overdue now. One that is still on its way is not sent again."""
        now = now_ms()
        for ask in await self._pipe.store.asks.overdue(now, AT_ONCE):
            event_id, source = f"{EXPIRED}{ask.id}", ask.source
            id = message_id(source.platform, source.account, event_id)
            text = f"(Nobody answered this question in time: {ask.text})"
            await accept(self._pipe, Inbound(id, event_id, source, text, received_at=now))
        await self._pipe.store.asks.forget(now - KEPT_MS)
        return self.every_seconds
