"""Messages: drop one that waits. It ends as `rejected`, reason `operator`, and its key goes on.

The first message in line may be running at this moment. The drop ends it by the same commit that a worker ends it by, so one
of the two wins, and the other leaves no trace. A message further back is ended by itself. The turn before it is not
disturbed, unless it answers both (an album): then it runs again, without the photo that was dropped.
"""

from __future__ import annotations

from contextlib import suppress

from shared import log
from shared.clock import now_ms
from shared.errors import AlreadyDone, CannotDo, Malformed, Superseded, Unavailable
from shared.ids import fresh_id
from shared.lane.freeing import free
from shared.lane_key import CONTROL, lane_of
from shared.mail import decode_inbound
from shared.messages import Inbound, Mail, Reply, Session, State
from shared.operating.keys import discard_mail
from shared.pipeline import Pipeline
from shared.reading.keys import first_mail, keys_at_work
from shared.store.change import Commit, Ending, Proof
from shared.store.control import ControlCommit
from shared.unreadable import stand_in
from shared.value import value

REASON = "operator"
NOTICE = "Your last message was removed by an operator and will not be answered."
TRIES = 20  # a try fails when a turn of the key was committed in between
LOOKED_AT = 10_000  # keys that are looked through for a message that only Redis knows


class NotPending(CannotDo):
    """The message cannot be dropped: nobody knows it, or it has ended."""


@value
class DroppedMessage:
    """A message that ended without an answer. `note` says why its key goes on later than at once, or is empty."""

    id: str
    session_key: str
    told: bool  # whether its chat is told
    note: str = ""
    state: str = State.REJECTED


@value
class _Found:
    """A message that waits, and its place in line."""

    session: Session
    session_key: str
    mail: Mail
    attempts: int
    is_first: bool


async def drop_message(pipe: Pipeline, id: str, *, tell: bool) -> DroppedMessage:
    """End the message, whatever runs it; NotPending if it has ended. When this returns, the database has it."""
    replies = (Reply(NOTICE),) if tell else ()
    for _ in range(TRIES):
        found = await _find(pipe, id)
        try:
            ended = await _end(pipe, found, replies)
        except (Superseded, AlreadyDone):
            continue
        if ended is not None:
            log.get().info("dropped by operator", key=found.session_key, message=id)
            return DroppedMessage(id, found.session_key, tell, await _tell_redis(pipe, found, *ended))
    raise Unavailable("the conversation moves on too fast: try again")


async def _find(pipe: Pipeline, id: str) -> _Found:
    row = await pipe.store.journal.find(id)
    if row is None:
        return await _find_in_redis(pipe, id)
    key = row["session_key"]
    # The session is loaded before the reads below, so the commit is refused if anything happens after it.
    session = await pipe.store.transcript.bare(key)
    row = await pipe.store.journal.find(id)
    if row is None or row["state"] != State.PENDING:
        raise NotPending(f"message {id} does not wait any more: it is {row['state'] if row else 'gone'}")
    first = await pipe.store.journal.pending(key, after=session.done_seq, limit=1)
    mail = Mail(row["seq"], _readable(row["payload"], id, key))
    return _Found(session, key, mail, row["attempts"], bool(first) and first[0].id == id)


async def _find_in_redis(pipe: Pipeline, id: str) -> _Found:
    """With durability = redis, only the mailboxes know what waits, so look through them."""
    for lane in (pipe.turns, pipe.control) if pipe.settings.durability == "redis" else ():
        for state in await keys_at_work(lane, LOOKED_AT):
            session = await pipe.store.transcript.bare(state.key)
            for n, waiting in enumerate(await first_mail(lane, state.key, pipe.settings.mailbox_limit)):
                inbound = _readable(waiting.payload, "", state.key)
                if inbound.id == id:
                    mail = Mail(waiting.seq, inbound, journaled=False, payload=waiting.payload)
                    return _Found(session, state.key, mail, 0, n == 0)
    raise NotPending(f"no message {id}")


async def _end(pipe: Pipeline, found: _Found, replies: tuple[Reply, ...]) -> tuple[str, tuple[int, ...]] | None:
    """The destination and the outbox rows of the notice to the chat; None: the message moved, look again."""
    key, mail, now = found.session_key, found.mail, now_ms()
    if not found.is_first:
        if mail.journaled:  # it comes back if this fails; only the mailbox has the other kind
            with suppress(Unavailable):  # a worker that takes it from the mailbox would run it in vain
                await discard_mail(pipe.lane_of(key), key, mail.seq)
        rejected = await pipe.store.reject_waiting(key, mail, replies, REASON)
        return (rejected.destination, rejected.outbox) if rejected is not None else None
    ending = Ending(State.REJECTED, REASON)
    if lane_of(key) == CONTROL:
        ended = await pipe.store.commit_control(ControlCommit(key, mail, found.attempts, replies, ending))
        return ended.destination, ended.outbox
    proof = Proof(f"drop_{fresh_id()}", REASON, found.attempts, now, now)
    committed = await pipe.store.commit(Commit(found.session, key, proof, mail=(mail,), replies=replies, ending=ending))
    return committed.destination, committed.outbox


async def _tell_redis(pipe: Pipeline, found: _Found, destination: str, outbox: tuple[int, ...]) -> str:
    """Let the key go on and the notice leave at once. Returns "", or why it takes longer."""
    lane = pipe.lane_of(found.session_key)
    try:
        await discard_mail(lane, found.session_key, found.mail.seq)
        if found.is_first:  # from the worker that runs it, or out of its delay
            await free(lane, found.session_key)
        for id in outbox:
            await pipe.deliveries.put(destination, id, str(id).encode())
    except Unavailable as error:
        return f"{error}; the key goes on when it is back"
    return ""


def _readable(payload: str | bytes, id: str, key: str) -> Inbound:
    try:
        return decode_inbound(payload)
    except Malformed:
        return stand_in(id, key)
