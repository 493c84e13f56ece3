"""Normalise → admit → settle: the same for every event of every platform, whether a request or a connection brought it.

An event is settled when it need not come again: its message was accepted, it is not for us, or it is recorded as something
that cannot be understood. Until then the platform, or the spool of a connection that never repeats itself, must keep it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import orjson

from producers.access import Verdict, judge, needs_mention
from producers.heard import Event, Heard, Moved, Undelivered
from producers.pairing import Pairing
from producers.pieces import Pieces
from producers.quotas import OverQuota, Quotas
from shared import log, metrics, tracing
from shared.background import survived
from shared.clock import now_ms
from shared.dead_reasons import ReplyReason
from shared.door import Acceptance, accept
from shared.errors import MailboxFull, Malformed, PipelineError, TooMany, Unavailable
from shared.failpoints import reach
from shared.messages import Inbound, key_digest
from shared.permission import AllowList
from shared.pipeline import Pipeline
from shared.platforms import PLATFORMS
from shared.platforms.settings import ChatSettings
from shared.routing import key_for
from shared.stages import stage
from shared.store.dead import FULL, Told
from shared.store.following import follow_chat
from shared.store.outbox import SentPart
from shared.store.quota import REASON as QUOTA
from shared.value import value

FULL_NOTICE = (
    "Too many messages are waiting here. Some have been set aside for a person to look at; please wait a little."
)
QUOTA_NOTICE = (
    "That is more than I may take at a time. Messages of the next {seconds} seconds or so will not be answered."
)

UNDELIVERED: ReplyReason = "undelivered"


@value
class Left:
    """Not for us, or from somebody who may not talk to us."""

    reason: str


@value
class Recorded:
    """Cannot be understood: kept as a dead letter, because sent again it would be no better."""

    reason: str


Settled = Acceptance | Left | Recorded


class Understanding(Protocol):
    """What a platform makes of its events."""

    name: str  # the platform

    def normalise(self, event: Event, received_at: int) -> Heard:
        """What the event is to us. Malformed where something in it is of the wrong kind. Pure."""

    async def known_before(self, inbound: Inbound, event: Event) -> bool:
        """Whether the message was accepted under another id than its own, which the door would not notice."""
        return False


class Settler:
    """Settles the events of one platform's account."""

    def __init__(
        self, pipe: Pipeline, platform: Understanding, *, sets_aside_when_full: bool, records_malformed: bool = True
    ) -> None:
        block = pipe.settings.platform(platform.name)
        self._pipe = pipe
        self._platform = platform
        self._judged_by = block if isinstance(block, ChatSettings) else None  # None: whoever sends was given a key
        self._pairing = Pairing(pipe, self._judged_by) if self._judged_by is not None else None
        self._listed = AllowList(pipe.settings, self._judged_by or ChatSettings(), platform.name)
        self._quotas = Quotas(pipe, platform.name)
        self._pieces = Pieces(pipe.servers)
        self._sets_aside_when_full = sets_aside_when_full
        self._records_malformed = records_malformed
        assert self._judged_by is not None or PLATFORMS[platform.name].trusts_sender

    @property
    def counts_senders(self) -> bool:
        """Whether a quota asks with which of several secrets an event came."""
        return self._quotas.of_senders

    async def settle(self, event: Event) -> Settled:
        """Settle an event: when this returns, it need not come again. Raises Unavailable, MailboxFull if so made, and
        TooMany where programs send: they are there to read it."""
        try:
            if event.broken:
                raise Malformed(event.broken)
            heard = self._normalise(event)
            if isinstance(heard, Inbound):
                return await self._admit(heard, event)
        except Malformed as error:
            if not self._records_malformed:
                raise
            return await self.record(event.ref, _raw(event), str(error))
        if isinstance(heard, Moved):
            return await self._follow(heard)
        if isinstance(heard, Undelivered):
            return await self._report(heard)
        log.get().debug("event ignored", platform=self._platform.name, ref=event.ref[:40], reason=heard.reason)
        return Left(heard.reason)

    async def admit(self, inbound: Inbound, sender: str) -> Settled:
        """Settle a message that was understood already: as `settle`."""
        return await self._admit(inbound, Event(inbound.event_id, {}, sender=sender))

    async def settle_all(self, events: Sequence[Event], settled: set[str]) -> None:
        """Settle what is not among `settled` yet and add it there, or raise. Chats go side by side; within one, an event
        waits for those before it."""
        chats: dict[str, list[Event]] = {}
        for event in events:
            if event.ref not in settled:
                chats.setdefault(event.chat, []).append(event)
        outcomes = await asyncio.gather(
            *(self._in_order(chats[chat], settled) for chat in chats), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def record(self, ref: str, payload: bytes, reason: str) -> Recorded:
        """Keep what cannot be understood as a dead letter, once."""
        text = payload.decode(errors="replace")
        await self._pipe.store.dead.set_aside("request", ref[:256], None, "malformed", reason, text)
        metrics.REFUSED.labels("malformed").inc()
        log.get().warning("malformed: recorded", platform=self._platform.name, ref=ref[:40], reason=reason)
        return Recorded(reason)

    def _normalise(self, event: Event) -> Heard:
        """Malformed also for an event that our own code stumbles over: it would do so each time the event came again, and
        hold up all those behind it. Where the caller reads our answer, the error is theirs to see."""
        try:
            return self._platform.normalise(event, now_ms())
        except PipelineError:
            raise
        except Exception as error:
            if not self._records_malformed:
                raise
            survived("normalise", "event not understood", error, platform=self._platform.name, ref=event.ref[:40])
            raise Malformed(f"{type(error).__name__} while it was read") from error

    async def _in_order(self, events: Sequence[Event], settled: set[str]) -> None:
        for event in events:
            await self.settle(event)
            settled.add(event.ref)

    async def _admit(self, inbound: Inbound, event: Event) -> Settled:
        if tracing.active is None:  # the stage is neither timed nor a failpoint: without it, 1 µs less for each message
            return await self._admitted(inbound, event)
        with stage("receive", self._platform.name):
            return await self._admitted(inbound, event)

    async def _admitted(self, inbound: Inbound, event: Event) -> Settled:
        block, pairing = self._judged_by, self._pairing
        if block is None or pairing is None:
            return await self._take(inbound, event)
        verdict = judge(inbound, block, self._listed)
        if verdict is Verdict.STRANGER and not await pairing.admits(inbound):
            await pairing.answer(inbound)
            return self._turn_away(inbound, verdict)
        pieces: Sequence[Inbound] = (inbound,)
        if needs_mention(inbound.source, block):
            addressed = verdict is not Verdict.UNADDRESSED
            may_talk = partial(self._may_talk, inbound, pairing)
            pieces = await self._pieces.admit(inbound, addressed=addressed, may_talk=may_talk)
        if not pieces:
            return self._turn_away(inbound, Verdict.UNADDRESSED)
        if await self._platform.known_before(inbound, event):
            metrics.DEDUP_HIT.inc()
            return Left("known before")
        settled = [await self._take(piece, event) for piece in pieces]
        if len(pieces) > 1:
            await self._pieces.forget(pieces)
        return settled[-1]

    async def _may_talk(self, inbound: Inbound, pairing: Pairing) -> bool:
        return self._listed.has(inbound.source) or await pairing.admits(inbound)

    async def _take(self, inbound: Inbound, event: Event) -> Settled:
        if self._quotas.any and (over := await self._over_quota(inbound, event)) is not None:
            return over
        try:
            return await accept(self._pipe, inbound)
        except MailboxFull as error:
            if not self._sets_aside_when_full:
                raise
            return await self._refuse(inbound, str(error))

    async def _over_quota(self, inbound: Inbound, event: Event) -> Left | None:
        """None: the message is within its quotas, or was accepted before."""
        key = str(key_for(inbound, self._pipe.settings))
        over = await self._quotas.check(inbound, key, event.sender)
        if over is None:
            return None
        if self._judged_by is None:
            raise TooMany(over.quota, over.retry_after)
        return await self._reject(inbound, key, over)

    async def _reject(self, inbound: Inbound, key: str, over: OverQuota) -> Left | None:
        """Record the message, and tell the chat once in a while."""
        notice = QUOTA_NOTICE.format(seconds=int(over.retry_after.total_seconds()) + 1) if over.first else None
        reach("quota.before_rejection")
        rejected = await self._pipe.store.quota.reject(inbound, key, notice)
        reach("quota.after_rejection")
        if rejected is None:
            return None
        metrics.REFUSED.labels(QUOTA).inc()
        log.get().warning("over a quota: rejected", key=key, quota=over.quota)
        await self._send(rejected.told)
        return Left(QUOTA)

    def _turn_away(self, inbound: Inbound, verdict: Verdict) -> Left:
        metrics.REFUSED.labels(verdict.value).inc()
        if verdict is Verdict.STRANGER:  # with the id that an operator would put on the list
            log.get().warning("stranger turned away", platform=self._platform.name, user=inbound.source.user)
        return Left(verdict.value)

    async def _refuse(self, inbound: Inbound, key: str) -> Left:
        """Too much waits in this chat, and the message cannot come again later: it becomes a dead letter, whole, and the
        chat is told."""
        reach("accept.before_refusal")
        told = await self._pipe.store.dead.refuse(inbound, key, FULL_NOTICE)
        reach("accept.after_refusal")
        metrics.DEAD_LETTER.labels(FULL).inc()
        log.get().error("mailbox full: set aside", key=key)
        await self._send(told)
        return Left(FULL)

    async def _send(self, told: Told | None) -> None:
        if told is not None:
            with contextlib.suppress(Unavailable):  # the housekeeper finds the part when Redis is back
                await self._pipe.deliveries.put(told.destination, told.part_id, str(told.part_id).encode())

    async def _follow(self, moved: Moved) -> Left:
        name = self._platform.name
        count = await follow_chat(self._pipe.store.database, name, moved.account, moved.chat, moved.to)
        about = {"platform": name, "chat": moved.chat, "to": moved.to, "conversations": count}
        log.get().warning("a group moved to a new id: settings that name the old one need it", **about)
        return Left("moved")

    async def _report(self, failed: Undelivered) -> Left:
        """A reply that counts as sent did not arrive. It becomes a dead letter, once, if it was ours. Told again, it says
        nothing new: the chat may have been opened since."""
        name, payload = self._platform.name, f"{self._platform.name} {failed.receipt}"
        if failed.part is not None and (sent := await self._sent_by_us(failed)) is not None:
            store = self._pipe.store
            if await store.dead.set_aside("reply", failed.part, None, UNDELIVERED, failed.reason, payload):
                metrics.DEAD_LETTER.labels(f"reply {UNDELIVERED}").inc()
                if failed.closes_chat:  # after a crash before this, the next failure there closes it
                    await store.closed_chats.close(str(sent.destination), failed.reason)
        log.get().error("reply not delivered", platform=name, part=failed.part, reason=failed.reason)
        return Left(UNDELIVERED)

    async def _sent_by_us(self, failed: Undelivered) -> SentPart | None:
        """The part, if it is ours: another deployment with the same account numbers its parts from 1 too. The receipt may not be
        written yet: then the key tells, which older versions did not send."""
        sent = await self._pipe.store.outbox.sent_as(int(failed.part or 0))
        if sent is None or (sent.destination.platform, sent.destination.account) != (
            self._platform.name,
            failed.account,
        ):
            return None
        if sent.receipt is None:
            return sent if failed.key_digest == key_digest(sent.idempotency_key) else None
        return sent if sent.receipt == failed.receipt else None


def _raw(event: Event) -> bytes:
    if event.raw is not None:
        return event.raw
    try:
        return orjson.dumps(event.fields)
    except TypeError:  # orjson reads JSON that is deeper than what it writes
        return b"(nested too deeply to be written down)"
