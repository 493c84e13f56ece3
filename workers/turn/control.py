"""The path of control mail, such as /stop: answered and ended one by one, without a session.

The journal says which message is next; the mailbox is only a hint. The answer is added by the transaction that compares and
sets the message's own row from pending. A crash before it leaves the mail where it was; a crash after it leaves mail that the
next holder finds ended, and drops.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from shared import log, metrics
from shared.codec import storable
from shared.control import is_control
from shared.dead_reasons import MessageReason
from shared.errors import AlreadyDone, Malformed, TooNew, Unavailable
from shared.lane import Lease
from shared.lane.lease import FIRST_MAILBOX_SEQ, Waiting
from shared.lane_key import conversation_of
from shared.mail import decode_inbound
from shared.messages import Mail, Reply, State
from shared.stages import correlate
from shared.store.change import Ending
from shared.store.control import ControlCommit, ControlCommitted
from shared.unreadable import stand_in
from shared.value import value
from workers import commands
from workers.delivery.parts import in_parts
from workers.turn.acknowledge import give_back, publish_and_acknowledge
from workers.turn.conclude import NOTICE, keep
from workers.turn.counting import GivenUp, begin_attempt
from workers.turn.fail import DETAIL_CHARACTERS, backoff, let_go
from workers.turn.open import leave_to_newer, load_session, set_aside, written_by_mailbox
from workers.turn.outcome import AlreadyEnded, Lost, Retry
from workers.turn.parts import TurnParts


@value
class Answered:
    """The commit is kept. The message is to leave the mailbox, and delivery is to hear of the answer."""

    seq: int
    committed: ControlCommitted


@value
class NextControl:
    """The control message that is next."""

    mail: Mail
    attempts: int = 0  # that the journal knows of
    unreadable: str | None = None  # why it cannot be read, if so
    restore_payload: bytes | None = None  # to be put into the mailbox, which lost it


async def answer_control(lease: Lease, parts: TurnParts) -> None:
    """Answer a key's control messages until it is idle, handed over, given back or another's. Twice for the same message
    answers once."""
    parts, answered = parts.for_key(conversation_of(lease.key)), 0
    while not lease.ended:
        match outcome := await take_first(lease, parts):
            case Answered(seq, committed):
                answered += 1
                await publish_and_acknowledge(lease, parts, committed.by_destination, [seq], answered)
            case AlreadyEnded():
                await lease.acknowledge(outcome.seqs, limit=1)
            case Retry():
                await give_back(lease, outcome)


async def take_first(lease: Lease, parts: TurnParts) -> Answered | AlreadyEnded | Retry | Lost:
    """Bring the message that is next to an outcome. Every error becomes one, unless a store of ours is away."""
    number = lease.attempts_before(lease.mail[0].seq).begun + 1
    found: NextControl | AlreadyEnded | Retry | None = None
    try:
        found = await find_next(lease, parts)
        if not isinstance(found, NextControl):
            return found
        correlate(found.mail.inbound.id)
        if found.unreadable is not None:
            return await _bury(lease, parts, found.mail, 0, "malformed", found.unreadable)
        begun = await begin_attempt(
            lease,
            found.mail.seq,
            journaled=found.attempts,
            restore_payload=found.restore_payload,
            max_attempts=parts.pipe.settings.max_attempts,
        )
        if isinstance(begun, Lost):
            return begun
        if isinstance(begun, GivenUp):
            detail = f"{begun.attempts} attempts came to no end"
            return await _bury(lease, parts, found.mail, begun.attempts, "crashed", detail)
        number = begun.number
        return await _answer(lease, parts, found.mail, number)
    except asyncio.CancelledError:
        await let_go(lease, parts.pipe.settings, number)
        raise
    except Exception as error:
        return await _failed(lease, parts, found, number, error)


async def find_next(lease: Lease, parts: TurnParts) -> NextControl | AlreadyEnded | Retry:
    """The first of the key's messages that the journal still has to end, whatever the mailbox shows first."""
    waiting = lease.mail[0]
    if waiting.seq >= FIRST_MAILBOX_SEQ:
        return await _only_in_redis(lease, waiting, parts)
    rows = await parts.pipe.store.journal.pending(lease.key, after=0, limit=1)
    if not rows or rows[0].seq > waiting.seq:
        return AlreadyEnded((waiting.seq,))
    row = rows[0]
    restore_payload = row.payload.encode() if row.seq < waiting.seq else None
    try:
        return NextControl(Mail(row.seq, decode_inbound(row.payload)), row.attempts, restore_payload=restore_payload)
    except TooNew as error:
        return leave_to_newer(lease, TooNew(str(error), written_at=row.received_at))
    except Malformed as error:
        return NextControl(Mail(row.seq, stand_in(row.id, lease.key)), row.attempts, unreadable=str(error))


async def _only_in_redis(lease: Lease, waiting: Waiting, parts: TurnParts) -> NextControl | AlreadyEnded | Retry:
    """With durability = redis, a message is in the journal only when it has ended."""
    store, ended = parts.pipe.store, AlreadyEnded((waiting.seq,))
    try:
        inbound = decode_inbound(waiting.payload)
    except TooNew as error:
        return leave_to_newer(lease, TooNew(str(error), written_at=written_by_mailbox(waiting)))
    except Malformed as error:
        await set_aside(lease.key, waiting, str(error), store)
        return ended
    if await store.journal.find(inbound.id) is not None:
        return ended
    return NextControl(Mail(waiting.seq, inbound, journaled=False, payload=waiting.payload))


async def _answer(lease: Lease, parts: TurnParts, mail: Mail, number: int) -> Answered | AlreadyEnded:
    """Carry out the command and say so. One that raises is answered at once: trying again would end the same way."""
    command = commands.parse(mail.inbound.text)
    if command is None or not is_control(mail.inbound.text):  # whoever put this into the mailbox of a control key
        return await _bury(lease, parts, mail, number, "malformed", "no control message")
    name, args = command
    key, store = conversation_of(lease.key), parts.pipe.store
    try:
        session = await load_session(key, store)
        done = await commands.run(commands.CommandCall(name, storable(args), mail.inbound, key, session, parts.pipe))
        assert isinstance(done, commands.CommandAnswer), name
    except Unavailable:
        raise
    except Exception:
        log.get().exception("command failed", key=lease.key, command=name)
        done = commands.sorry(name)
    outcome = await _end(
        lease, parts, ControlCommit(lease.key, mail, number, (Reply(done.text),), facts=done.change.facts)
    )
    if isinstance(outcome, Answered):
        metrics.ENDED["command"].inc()
    return outcome


async def _bury(
    lease: Lease, parts: TurnParts, mail: Mail, number: int, reason: MessageReason, detail: str
) -> Answered | AlreadyEnded:
    """Make the message a dead letter and tell the chat, once: both by the one commit."""
    ending = Ending(State.DEAD, reason, detail[:DETAIL_CHARACTERS])
    outcome = await _end(lease, parts, ControlCommit(lease.key, mail, number, (Reply(NOTICE),), ending))
    if isinstance(outcome, Answered):
        metrics.ENDED["dead"].inc()
        metrics.DEAD_LETTER.labels(reason).inc()
        log.get().error("dead letter", key=lease.key, reason=reason, attempts=number)
    return outcome


async def _end(lease: Lease, parts: TurnParts, commit: ControlCommit) -> Answered | AlreadyEnded:
    """End the message, once: whoever finds it ended only drops it from the mailbox."""
    mail = commit.mail
    commit = replace(commit, replies=in_parts(mail.inbound.source.platform, commit.replies))
    try:
        return Answered(mail.seq, await keep(lease, lambda: parts.pipe.store.commit_control(commit)))
    except AlreadyDone:
        return AlreadyEnded((mail.seq,))


async def _failed(
    lease: Lease, parts: TurnParts, found: NextControl | AlreadyEnded | Retry | None, number: int, error: Exception
) -> Answered | AlreadyEnded | Retry:
    """What becomes of an attempt that raised: another one later, or a dead letter. Unavailable says nothing about the
    message: it is raised on, and the attempt does not count."""
    settings = parts.pipe.settings
    if isinstance(error, Unavailable) or lease.ended:
        raise error
    log.get().exception("control message failed", key=lease.key, attempt=number)
    metrics.ENDED["failed"].inc()
    if isinstance(found, NextControl):
        detail = f"{type(error).__name__}: {error}"
        if number >= settings.max_attempts:
            return await _bury(lease, parts, found.mail, number, "error", detail)
        if found.mail.journaled:
            reason = f"error: {detail[:DETAIL_CHARACTERS]}"
            await parts.pipe.store.journal.count_attempt(found.mail.inbound.id, number, reason)
    return Retry(backoff(settings, number), spent=True)
