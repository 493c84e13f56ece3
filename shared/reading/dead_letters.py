"""Dead letters: what was set aside, why, and what somebody did about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from shared.clock import moment
from shared.errors import NotFound, PipelineError
from shared.messages import Inbound, Kind
from shared.value import value

if TYPE_CHECKING:  # the command line imports LetterState to parse its options, and not the database for that
    from shared.store import Store
    from shared.store.database import Row


NEWEST = 2**62


class LetterState(StrEnum):
    """OPEN: nobody has dealt with it. REPLAYED and DROPPED are for good; the record stays."""

    OPEN = "open"
    REPLAYED = "replayed"
    DROPPED = "dropped"


@value
class DeadLetter:
    """A message (`inbound`), a reply (`reply`) or something that was never understood, as a list shows it."""

    id: int
    kind: str
    ref: str  # the message id, the outbox number, or what the platform called it
    session_key: str | None
    reason: str
    detail: str
    attempts: int
    state: LetterState
    created_at: datetime


@value
class WholeDeadLetter(DeadLetter):
    """A dead letter with what it holds. The payload is a stranger's text: show it as text only."""

    payload: str

    @property
    def text(self) -> str | None:
        """What was said, where the letter is a message that can be read; it can then be edited. None: it cannot."""
        inbound = self._inbound()
        return inbound.text if inbound is not None and inbound.kind is Kind.MESSAGE else None

    @property
    def replayed_as(self) -> str | None:
        """The id of the message that runs in its place, where it was replayed. None: it was not, or is no message that can be read."""
        inbound = self._inbound() if self.state is LetterState.REPLAYED else None
        return replay_of(inbound, self.id).id if inbound is not None else None

    def _inbound(self) -> Inbound | None:
        from shared.mail import decode_inbound

        try:
            return decode_inbound(self.payload) if self.kind == "inbound" else None
        except PipelineError:
            return None


def replay_of(inbound: Inbound, letter: int) -> Inbound:
    """The message that runs in place of a letter's: always of the same id, so that a letter runs once."""
    from shared.codec import message_id

    event_id, source = f"{inbound.event_id}#replay-{letter}", inbound.source
    return replace(inbound, id=message_id(source.platform, source.account, event_id), event_id=event_id)


async def dead_letters(store: Store, state: LetterState, limit: int) -> list[DeadLetter]:
    """The letters in a state, the newest first."""
    return [DeadLetter(*_listed(row)) for row in await store.dead.all(state=state.value, limit=limit)]


async def dead_letter_page(store: Store, state: LetterState, limit: int, before: int = NEWEST) -> list[DeadLetter]:
    """The letters in a state with a number below `before`, the newest first. Goes by index."""
    return [DeadLetter(*_listed(row)) for row in await store.overview.dead(state.value, before, limit)]


async def dead_letters_of(store: Store, session_key: str, limit: int) -> list[DeadLetter]:
    """The newest letters of a conversation, in any state."""
    return [DeadLetter(*_listed(row)) for row in await store.overview.dead_of(session_key, limit)]


async def dead_letter(store: Store, id: int) -> WholeDeadLetter:
    """One letter; NotFound where no letter has that number."""
    row = await store.dead.find(id)
    if row is None:
        raise NotFound(f"no dead letter {id}: see `keyturn dead list`")
    return WholeDeadLetter(*_listed(row), row["payload"])


def _listed(row: Row) -> tuple[int, str, str, str | None, str, str, int, LetterState, datetime]:
    what = (row["id"], row["kind"], row["ref"], row["session_key"], row["reason"], row["detail"], row["attempts"])
    return *what, LetterState(row["state"]), moment(row["created_at"])
