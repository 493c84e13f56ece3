"""How a conversation begins and ends by itself, before the turn that finds it so.

A session that is over ends by a commit of its own, which opens the next one and leaves there why. A crash after it costs
nothing: the next holder finds the new session, and the first answer in it tells agent and user. No model is asked here.
A thread of a DM begins with a copy of what the DM showed last.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from shared import log
from shared.clock import now_ms
from shared.context.marks import COMMAND, is_user, seed_row
from shared.errors import Unavailable
from shared.ids import fresh_id
from shared.messages import Entry, Inbound, Session, Source
from shared.pipeline import Pipeline
from shared.session_key import SessionKey
from shared.store.change import Change
from shared.store.transcript import LATEST

REASON, ACTIVE, RESUMED = "reset_reason", "reset_active", "resumed_at"  # names of session facts
ENDED = "session_reset"
WHY = {
    "idle": "nothing had been said for a while",
    "daily": "a new day has begun",
}


class Lifetime:
    """The rules of one deployment."""

    def __init__(self, pipe: Pipeline) -> None:
        self._transcript = pipe.store.transcript
        self._policies = pipe.settings.reset.policies()
        self._zone = pipe.settings.zone
        self._never = not self._policies.ending()

    def over(self, session: Session, inbound: Inbound) -> str | None:
        """Why the session was over when this came, if so. One in which nothing was said yet has nothing to end."""
        if self._never or session.message_count == 0:
            return None
        last_active = max(session.updated_at, int(session.facts.get(RESUMED, 0)))
        return self.over_at(min(inbound.received_at or LATEST, now_ms()), last_active, inbound.source)

    def over_at(self, at_ms: int, last_active_ms: int, source: Source) -> str | None:
        """Why a session of `source` that was last active then was over at a time, if so."""
        last_active, at = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (last_active_ms, at_ms))
        return self._policies.of(source).reason(last_active, at, self._zone)

    def notices(self, session: Session, source: Source) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the agent and what the chat is told in the first turn after a reset."""
        if (reason := session.facts.get(REASON)) is None:
            return (), ()
        why = WHY.get(reason, reason)
        note = f"The conversation before this one ended because {why}. Its messages are not shown here."
        if session.facts.get(ACTIVE) != "1":
            return (note,), ()
        if not self._policies.of(source).tells(source.platform):
            return (note,), ()
        return (note,), (f"This is a new conversation, because {why}. /resume goes back to the one before.",)

    async def seed(self, session: Session, session_key: str, source: Source) -> tuple[Entry, ...]:
        """The rows that a session which does not exist yet begins with: in a thread of a DM, those of the DM."""
        if session.version or not source.thread or source.chat_type != "dm":
            return ()
        try:
            parent = str(replace(SessionKey.parse(session_key), thread=None))
            rows = await self._transcript.window(parent, before=LATEST)
        except Unavailable:  # the turn will be tried again, and the thread has not begun
            raise
        except Exception:
            log.get().exception("thread not seeded", key=session_key)
            return ()
        return tuple(seed_row(row) for row in rows if not row.data.get(COMMAND))


def reset(session: Session, reason: str) -> Change:
    """End the session, open the next one, and leave facts there that say why: its first turn tells agent and user."""
    next_id = f"ses_{fresh_id()}"
    active = not session.history or any(map(is_user, session.history))  # a session without loaded history has rows, too
    facts = {(next_id, REASON): reason, (next_id, ACTIVE): str(int(active))}
    return Change(next_session_id=next_id, end_reason=ENDED, facts=facts)


def without_reset_facts(session: Session, change: Change) -> Change:
    """The change of a turn that has told why the session began, so that no later turn tells it again."""
    if REASON not in session.facts:
        return change
    return replace(change, facts={**change.facts, (session.id, REASON): None, (session.id, ACTIVE): None})
