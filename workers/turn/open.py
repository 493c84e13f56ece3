"""Step 6: find a key's next message and load its session. The mailbox is only a hint: the journal's numbers decide the
order, so a mailbox that lost mail or got it in another order changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from shared import metrics
from shared.errors import Malformed, TooNew
from shared.lane import Lease
from shared.lane.lease import FIRST_MAILBOX_SEQ, Waiting
from shared.mail import Content, TakeNotes, decode_inbound, decode_mail
from shared.messages import Inbound, Mail, Session, State
from shared.stages import stage
from shared.store import Store
from shared.unreadable import stand_in
from shared.value import value
from workers.newer import delay_for_newer
from workers.side.memory_notes import look_back
from workers.turn.attempt import HeldKey
from workers.turn.outcome import REOPEN, AlreadyEnded, Reopen, Retry

MERGED_AHEAD = "merged_ahead:"  # and a key, a fact of a session: mail up to this number may have ended out of its order


@value
class Opened:
    """The message that is next, and the session that it belongs to."""

    session: Session
    mail: Mail
    attempts: int = 0  # that the journal knows of
    outage_ms: int | None = None  # how long the model's provider has been away, as the journal knows
    unreadable: str | None = None  # why it cannot be read, if so
    restore_payload: bytes | None = None  # to be put into the mailbox, which lost it
    may_have_run: bool = True  # False: no attempt before this one has called a tool
    may_have_draft: bool = True  # False: no attempt before this one has begun to show its answer


async def open_first(held: HeldKey) -> Opened | AlreadyEnded | Reopen | Retry:
    """Open the first mail, under the session's lock where several keys talk to it. Notes to take are taken at once. Mail
    that only a newer worker can read is left to it."""
    lease, waiting = held.lease, held.lease.mail[0]
    try:
        opened = await open_mail(lease.key, waiting, held.session, held.parts.pipe.store, held.parts.notes_of)
    except TooNew as error:
        return leave_to_newer(lease, error)
    if isinstance(opened, TakeNotes):
        await look_back(opened.session_id, lease.key, held.parts)
        return AlreadyEnded((waiting.seq,))
    if isinstance(opened, Opened) and await held.lock.follow(opened.session):
        return REOPEN  # while we waited for the lock, another key may have moved the session on
    if isinstance(opened, Opened):
        lease.talks_to(opened.session.id)
    return opened


async def open_mail(
    key: str,
    waiting: Waiting,
    session: Session | None,
    store: Store,
    notes_of: Callable[[str, Inbound], str | None] | None = None,
) -> Opened | AlreadyEnded | TakeNotes:
    """Find the message that is next by the journal's count. `session` is the one known from our last commit, if any.
    `notes_of` says whose notes are read with it.

    Mail of another kind is in no journal: it is given as it is. TooNew: only a newer worker can read what is next.
    """
    ended = AlreadyEnded((waiting.seq,))
    journaled = waiting.seq < FIRST_MAILBOX_SEQ
    inbound, error = _decoded(waiting)
    if isinstance(inbound, TakeNotes):
        return inbound
    if isinstance(error, TooNew) and not journaled:
        raise TooNew(str(error), written_at=written_by_mailbox(waiting))
    attempts, outage_ms, known, has_run, has_draft = 0, None, True, False, False
    if session is not None and waiting.seq <= int(session.facts.get(MERGED_AHEAD + key, 0)):
        session = None  # it may have ended already: the journal knows
    if session is None:
        with stage("load"):
            notes = notes_of(key, inbound) if notes_of is not None and inbound is not None else None
            session, standing = await store.transcript.load(key, inbound.id if inbound is not None else "", notes)
        if standing is not None:
            attempts, outage_ms = standing.attempts, standing.outage_ms
            has_run, has_draft = standing.has_run, standing.has_draft
            if standing.state not in (State.PENDING, None):
                return ended
        # The journal has it; where it does not, no commit could end it.
        known = standing is not None and standing.state is not None
    if not journaled:
        if inbound is None:
            await set_aside(key, waiting, str(error), store)
            return ended
        mail = Mail(waiting.seq, inbound, journaled=False, payload=waiting.payload)
        return Opened(session, mail, attempts, may_have_run=has_run, may_have_draft=has_draft)
    if waiting.seq <= session.done_seq:
        return ended
    if inbound is not None and known and waiting.seq == session.done_seq + 1:
        mail = Mail(waiting.seq, inbound)
        return Opened(session, mail, attempts, outage_ms, may_have_run=has_run, may_have_draft=has_draft)
    return await _from_journal(key, waiting, session, store)


async def open_barely(key: str, waiting: Waiting, store: Store) -> Opened | AlreadyEnded:
    """The same for mail that could not be opened: without transcript and facts, enough to set it aside. Mail for a newer worker
    never comes here, because opening it leaves it to that worker first."""
    session = await store.transcript.bare(key)
    if waiting.seq < FIRST_MAILBOX_SEQ:
        return await _from_journal(key, waiting, session, store)
    inbound, error = _decoded(waiting)
    if not isinstance(inbound, Inbound):
        await set_aside(key, waiting, str(error or ""), store)
        return AlreadyEnded((waiting.seq,))
    return Opened(session, Mail(waiting.seq, inbound, journaled=False, payload=waiting.payload))


async def load_session(key: str, store: Store) -> Session:
    """The session that a key talks to, as it is now."""
    session, _ = await store.transcript.load(key, "")
    return session


async def _from_journal(key: str, waiting: Waiting, session: Session, store: Store) -> Opened | AlreadyEnded:
    """There is a gap: Redis lost something, or two receivers pushed in another order than they journaled. Or the mailbox
    shows something that cannot be read."""
    rows = await store.journal.pending(key, after=session.done_seq, limit=1)
    if not rows or rows[0].seq > waiting.seq:  # what waits is no longer pending
        return AlreadyEnded((waiting.seq,))
    row = rows[0]
    restore_payload = row.payload.encode() if row.seq < waiting.seq else None
    try:
        mail = Mail(row.seq, decode_inbound(row.payload))
        return Opened(session, mail, row.attempts, row.outage_ms, restore_payload=restore_payload)
    except TooNew as error:
        raise TooNew(str(error), written_at=row.received_at) from None
    except Malformed as error:
        return Opened(session, Mail(row.seq, stand_in(row.id, key)), row.attempts, unreadable=str(error))


async def set_aside(key: str, waiting: Waiting, error: str, store: Store) -> None:
    """Record mail that cannot be read and that only Redis has, as a dead letter, once."""
    payload = waiting.payload.decode(errors="replace")
    await store.dead.set_aside("mail", str(waiting.seq), key, "malformed", error, payload)
    metrics.DEAD_LETTER.labels("malformed").inc()


def leave_to_newer(lease: Lease, error: TooNew) -> Retry:
    """Give the key back, for a worker that can read its mail: no attempt is spent."""
    return Retry(delay_for_newer(lease, error), spent=False)


def written_by_mailbox(waiting: Waiting) -> int:
    """When a mailbox numbered this mail by itself (wall clock, ms): it numbers by microseconds."""
    return waiting.seq // 1000


def _decoded(waiting: Waiting) -> tuple[Content | None, Malformed | None]:
    """What the mailbox has, or None and the reason why it cannot be read."""
    try:
        return decode_mail(waiting.payload), None
    except Malformed as error:
        return None, error
