"""Step 3: accept. The only door in: journal, then mailbox and wake. Whoever got an answer from here need not send again."""

from __future__ import annotations

from dataclasses import replace

from shared import log, metrics
from shared.busy import is_for_running_turn
from shared.control import is_control_message
from shared.errors import MailboxFull, Malformed, Unavailable
from shared.failpoints import reach
from shared.lane import Admission, Put
from shared.lane.telling import tell_turn
from shared.lane_key import ControlKey, conversation_of
from shared.mail import decode_inbound, encode_mail
from shared.messages import Inbound, Kind, State
from shared.pipeline import Pipeline
from shared.routing import key_for
from shared.session_key import SessionKey
from shared.stages import correlate, stage
from shared.tracing import annotate, traceparent
from shared.value import value

SEEN_TTL_S = 14 * 24 * 3600  # longer than any platform redelivers; only for durability = redis


@value
class Acceptance:
    """What became of an inbound at the door. `fresh` is false if it was known before: then nothing was changed."""

    id: str
    session_key: str
    state: str
    fresh: bool


async def accept(pipe: Pipeline, inbound: Inbound, key: SessionKey | None = None) -> Acceptance:
    """Take an inbound in, once. It is answered or set aside from here on, whatever breaks.

    `key` is the conversation that it belongs to, where its source does not say. Raises Malformed for a source without the
    ids it needs, MailboxFull, and Unavailable when nothing could keep it.
    """
    if key is None:
        key = key_for(inbound, pipe.settings)
    correlate(inbound.id)
    with stage("accept"):
        if (trace := traceparent()) is not None:
            inbound = replace(inbound, trace=trace)
            annotate(str(key))
        journaled = pipe.settings.durability == "journal"
        is_control = inbound.kind is Kind.MESSAGE and is_control_message(inbound)
        numbered_by = ControlKey(key) if is_control else key
        acceptance = await (_journal if journaled else _mailbox_only)(pipe, inbound, str(numbered_by))
        if is_for_running_turn(inbound.text) and acceptance.state == State.PENDING:
            await _tell_turn(pipe, acceptance.session_key)
    if acceptance.fresh:
        metrics.ACCEPTED.labels(inbound.source.platform).inc()
    else:
        metrics.DEDUP_HIT.inc()
    log.get().info("accepted" if acceptance.fresh else "accepted before", key=acceptance.session_key)
    return acceptance


async def _tell_turn(pipe: Pipeline, key: str) -> None:
    """Let the running turn look for what was said with /steer, or for /new. Where it does not hear it, that waits its turn."""
    try:
        await tell_turn(pipe.turns, key)
    except Unavailable as error:
        log.get().warning("running turn not told", key=key, error=str(error))


async def _journal(pipe: Pipeline, inbound: Inbound, key: str) -> Acceptance:
    payload = encode_mail(inbound)
    reach("accept.before_journal")
    accepted = await pipe.store.journal.accept(inbound, payload, key, pipe.settings.mailbox_limit)
    reach("accept.after_journal")
    if not accepted.fresh and _says_something_else(inbound, accepted.payload):
        metrics.DEDUP_CONFLICT.labels(inbound.source.platform).inc()
        log.get().error("not taken: an accepted message has the same id and says something else", key=key)
    if accepted.state == State.PENDING:  # also when it is not fresh: the first receiver may have died before its wake
        try:
            reach("accept.before_wake")
            known = payload if accepted.fresh else accepted.payload.encode()
            await pipe.lane_of(accepted.session_key).put(accepted.session_key, accepted.seq, known)
            reach("accept.after_wake")
        except Unavailable as error:  # the journal has it: the housekeeper wakes the key when Redis is back
            log.get().warning("accepted without a wake", error=str(error))
    return Acceptance(inbound.id, conversation_of(accepted.session_key), accepted.state, accepted.fresh)


async def _mailbox_only(pipe: Pipeline, inbound: Inbound, key: str) -> Acceptance:
    payload = encode_mail(inbound)
    limit = pipe.settings.mailbox_limit
    put = await pipe.lane_of(key).put(key, 0, payload, Admission(limit, inbound.id, SEEN_TTL_S))
    if put is Put.FULL:
        raise MailboxFull(key)
    return Acceptance(inbound.id, conversation_of(key), State.PENDING, put is not Put.SEEN)


def _says_something_else(inbound: Inbound, accepted: str) -> bool:
    """Whether two messages share an id, so that one of them would vanish. Names may change between two deliveries of one."""
    try:
        known = decode_inbound(accepted)
    except Malformed:  # deleted, or from another version
        return False
    return _content(inbound) != _content(known)


def _content(inbound: Inbound) -> tuple[object, ...]:
    source = inbound.source
    return source.chat, source.thread, source.user, inbound.text, inbound.media
