"""Questions whose time is over: each ends by mail, which takes its run up. Questions that ended long ago are forgotten.

| the mail of a question | what the next look does |
|---|---|
| waits | nothing |
| ended, and the question is still open: an operator dropped it | sends the next one |
| became a dead letter, or ended so `MOST_TRIES` times | ends the question without a turn; its run is deleted as a leftover |
"""

from __future__ import annotations

from shared import log
from shared.background import survived
from shared.clock import now_ms
from shared.door import accept
from shared.errors import Malformed, Unavailable
from shared.failpoints import reach
from shared.messages import State
from shared.pipeline import Pipeline
from shared.session_key import SessionKey
from shared.store.asks import OverdueAsk
from workers.turn.question import expiry_mail

AT_ONCE = 200
MOST_TRIES = 5
KEPT_MS = 30 * 24 * 3_600_000  # after its end, somebody who answers late is told how it ended


class OverdueQuestions:
    """Sends mail for each such question until its end is recorded. The mail's id follows from the question, so several
    housekeepers send one. A question that cannot be dealt with holds up none of the others."""

    def __init__(self, pipe: Pipeline) -> None:
        self.every_seconds = pipe.settings.sweep_seconds
        self._pipe = pipe

    async def look(self) -> float:
        """Once through all questions that are overdue now."""
        now, asks = now_ms(), self._pipe.store.asks
        last: OverdueAsk | None = None
        while overdue := await asks.overdue(now, last, AT_ONCE):
            last = overdue[-1]
            for ask in overdue:
                try:
                    await self._send(ask, now)
                except Unavailable:
                    raise
                except Exception as error:  # a full mailbox, for example: the next look tries again
                    survived("housekeeper", "question not ended", error, ask=ask.id, key=ask.session_key)
        await asks.forget(now - KEPT_MS)
        return self.every_seconds

    async def _send(self, ask: OverdueAsk, now: int) -> None:
        store = self._pipe.store
        for number in range(MOST_TRIES):
            try:
                mail, key = expiry_mail(ask, number, now), SessionKey.parse(ask.session_key)
            except Malformed as error:
                log.get().error("question cannot be read", ask=ask.id, error=str(error))
                break
            known = await store.journal.find(mail.id)
            if known is None:
                reach("ask.before_expiry")
                await accept(self._pipe, mail, key)
                reach("ask.after_expiry")
                return
            if known["state"] == State.PENDING:
                return
            if known["state"] == State.DEAD:
                break
        log.get().error("question ended without a turn", ask=ask.id, key=ask.session_key)
        await store.asks.expire(ask.id, now)
