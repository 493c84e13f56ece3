"""Step 6: what comes next for a key. The mailbox is only a hint: the journal's numbers decide the order."""

from __future__ import annotations

from shared import metrics
from shared.errors import Malformed
from shared.lane.lease import FIRST_MAILBOX_SEQ, Waiting
from shared.mail import Content, TakeNotes, decode_inbound, decode_mail
from shared.messages import Inbound, Mail, Session, State
from shared.stages import stage
from shared.store import Store
from shared.unreadable import stand_in
from shared.value import value


@value
class Opened:
    """The mail to run, or None when what waits has ended before."""

    session: Session
    mail: Mail | None
    attempts: int = 0  # that the journal knows of
    outage_ms: int | None = None  # how long its provider has been away, as the journal knows
    unreadable: str | None = None  # why it cannot be read, if so
    lacking: bytes | None = None  # what the mailbox should hold of it and does not


async def open_mail(key: str, waiting: Waiting, session: Session | None, store: Store) -> Opened | TakeNotes:
    """Find the message that is next by the journal's count. `session` is the one known from our last commit, if any.

    Mail of another kind is in no journal: it is given as it is.
    """
    journaled = waiting.seq < FIRST_MAILBOX_SEQ
    inbound, error = _decoded(waiting)
    if isinstance(inbound, TakeNotes):
        return inbound
    attempts, outage_ms, known = 0, None, True
    if session is None:
        with stage("load"):
            session, standing = await store.transcript.load(key, inbound.id if inbound is not None else "")
        if standing is not None:
            attempts, outage_ms = standing.attempts, standing.outage_ms
            if standing.state != State.PENDING:
                return Opened(session, None)
        known = standing is not None  # the journal has it; where it does not, no commit could end it
    if not journaled:
        if inbound is None:
            await _set_aside(key, waiting, error, store)
            return Opened(session, None)
        return Opened(session, Mail(waiting.seq, inbound, journaled=False, payload=waiting.payload), attempts)
    if waiting.seq <= session.done_seq:
        return Opened(session, None)
    if inbound is not None and known and waiting.seq == session.done_seq + 1:
        return Opened(session, Mail(waiting.seq, inbound), attempts, outage_ms)
    return await _from_journal(key, waiting, session, store)


async def open_barely(key: str, waiting: Waiting, store: Store) -> Opened:
    """The same for mail that could not be opened: without transcript and facts, enough to set it aside."""
    session = await store.transcript.bare(key)
    if waiting.seq < FIRST_MAILBOX_SEQ:
        return await _from_journal(key, waiting, session, store)
    inbound, error = _decoded(waiting)
    if not isinstance(inbound, Inbound):
        await _set_aside(key, waiting, error, store)
        return Opened(session, None)
    return Opened(session, Mail(waiting.seq, inbound, journaled=False, payload=waiting.payload))


async def _from_journal(key: str, waiting: Waiting, session: Session, store: Store) -> Opened:
    """There is a gap: Redis lost something, or two receivers pushed in another order than they journaled."""
    rows = await store.journal.pending(key, after=session.done_seq, limit=1)
    if not rows or rows[0].seq > waiting.seq:  # what waits is no longer pending
        return Opened(session, None)
    row = rows[0]
    lacking = row.payload.encode() if row.seq < waiting.seq else None
    try:
        mail = Mail(row.seq, decode_inbound(row.payload))
        return Opened(session, mail, row.attempts, row.outage_ms, lacking=lacking)
    except Malformed as error:
        return Opened(session, Mail(row.seq, stand_in(row.id, key)), row.attempts, unreadable=str(error))


async def _set_aside(key: str, waiting: Waiting, error: str, store: Store) -> None:
    payload = waiting.payload.decode(errors="replace")
    await store.dead.set_aside("mail", str(waiting.seq), key, "malformed", error, payload)
    metrics.DEAD_LETTER.labels("malformed").inc()


def _decoded(waiting: Waiting) -> tuple[Content | None, str]:
    """What the mailbox has, or None and the reason why it cannot be read."""
    try:
        return decode_mail(waiting.payload), ""
    except Malformed as error:
        return None, str(error)
