"""One key from both sides: its mailbox in Redis, and what the database says still has to be done for it."""

from __future__ import annotations

from datetime import datetime

from shared import keys
from shared.clock import moment
from shared.errors import Malformed, NotFound, TooNew
from shared.lane.lease import Waiting
from shared.lane_key import TURNS, lane_of
from shared.mail import TakeNotes, decode_mail
from shared.pipeline import Pipeline
from shared.reading.keys import KeyPhase, KeyState, first_mail, state_of_key
from shared.value import value

MAIL_SHOWN = 20


@value
class MailboxEntry:
    """A piece of mail: its number, and what it is: a message id, a session to take notes of, an outbox number, or why
    this process cannot read it."""

    seq: int
    id: str


@value
class KeyInJournal:
    """How far the journal has come with a session key or a control key."""

    session_id: str | None  # the session that the key talks to; control messages have none
    last_seq: int  # the number of the last message that was accepted
    done_seq: int  # the number of the last message that has ended
    created_at: datetime
    pending: int  # messages that have not ended


@value
class UnsentParts:
    """The reply parts that a destination still waits for, by their outbox numbers."""

    unsent: tuple[int, ...]


@value
class KeyMailbox:
    """A key with the first MAIL_SHOWN pieces of its mail. `journal` is None where the database knows nothing of it."""

    state: KeyState
    queue: str
    mail: tuple[MailboxEntry, ...]
    journal: KeyInJournal | UnsentParts | None


async def mailbox_of(pipe: Pipeline, key: str) -> KeyMailbox:
    """How one key stands in Redis and in the database; NotFound for a key that neither has heard of."""
    lane = pipe.lane_of(key)
    state = await state_of_key(lane, key)
    mail = await first_mail(lane, key, MAIL_SHOWN)
    is_destination = lane is pipe.deliveries
    journal = await (_unsent(pipe, key) if is_destination else _journaled(pipe, key))
    if state.state is KeyPhase.IDLE and not mail and journal is None:
        raise NotFound(f"no key {key}: see `keyturn keys list` and `keyturn sessions list`")
    queue = keys.queue_name(lane.name, keys.partition(key, lane.partitions))
    entries = tuple(MailboxEntry(waiting.seq, _id(waiting, is_destination)) for waiting in mail)
    return KeyMailbox(state, queue, entries, journal)


async def _journaled(pipe: Pipeline, session_key: str) -> KeyInJournal | None:
    row = await pipe.store.journal.route(session_key)
    if row is None:
        return None
    session_id = row["session_id"] if lane_of(session_key) == TURNS else None
    return KeyInJournal(session_id, row["last_seq"], row["done_seq"], moment(row["created_at"]), row["pending"])


async def _unsent(pipe: Pipeline, destination: str) -> UnsentParts | None:
    unsent = await pipe.store.outbox.unsent(destination, MAIL_SHOWN)
    return UnsentParts(unsent) if unsent else None


def _id(waiting: Waiting, is_destination: bool) -> str:
    if is_destination:
        return waiting.payload.decode(errors="replace")
    try:
        content = decode_mail(waiting.payload)
    except TooNew as error:
        return f"for a newer worker: {error}"
    except Malformed as error:
        return f"unreadable: {error}"
    return f"notes of {content.session_id}" if isinstance(content, TakeNotes) else content.id
