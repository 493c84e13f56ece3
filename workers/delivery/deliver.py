"""Step 10: drain a destination. Parts leave one after another, in order; a failing one holds back those behind it.

`sending` is on disk before the call and the receipt after it. A crash between leaves a row in `sending`: whoever finds it a
lease time later knows that it may have arrived, flags it, and sends it again where the platform recognises the key or the
policy says so. Until then its worker may be alive, whatever Redis says, and the destination waits.
Before a part is taken, its chat and its bot must have a send left in their budgets (shared/sending). If not, the destination is
given back until then, and no worker waits with it. A platform that asks us to wait is left alone by all workers.
A database that is away is no crash: the worker waits for it with the receipt in its hands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from typing import TypeVar

from shared import log, metrics
from shared.background import survived
from shared.backoff import backoff
from shared.codec import message_id
from shared.dead_reasons import ReplyReason
from shared.errors import Ambiguous, BotRefused, Denied, RateLimited, TooNew, Transient, Unavailable, Undeliverable
from shared.failpoints import reach
from shared.lane import Lease
from shared.messages import Part, Receipt
from shared.pipeline import Pipeline
from shared.platforms.facts import Idempotency
from shared.sending.budgets import REFUSED_WAIT
from shared.settings import Settings
from shared.stages import correlate, stage
from shared.store.drafts import is_draft
from shared.store.parts import turn_of_part
from shared.value import value
from workers.delivery.failure_notice import tell_of_failure
from workers.delivery.sender import Edits, Sender
from workers.newer import delay_for_newer

AT_ONCE = 50  # parts that are acknowledged together
LOOK_SECONDS = 1.0  # parts are sent for so long; then acknowledging looks whether a pause holds the destination
RETRY_SECONDS = 0.5  # between tries while the database is away
BACKOFF_SPREAD = 0.2
UNREACHABLE: ReplyReason = "unreachable"
CLOSED: ReplyReason = "chat closed"  # why a part was not sent that nobody in the chat asked for
Answer = TypeVar("Answer")


@value
class Deliveries:
    """What a worker process delivers with."""

    pipe: Pipeline
    senders: Mapping[str, Sender]


class Outgoing:
    """What a destination waits for, in the hands of whoever holds its lease. While the database is away, everything here
    waits for it: this worker knows what the platform said, and nobody else would."""

    def __init__(self, lease: Lease, deliveries: Deliveries) -> None:
        self.lease = lease
        self.senders = deliveries.senders
        self.settings = deliveries.pipe.settings
        self._budgets = deliveries.pipe.budgets
        self._budgeted = self._budgets.budgeted(lease.key)
        self._outbox = deliveries.pipe.store.outbox
        self._drafts = deliveries.pipe.store.drafts
        self._closed_chats = deliveries.pipe.store.closed_chats

    async def wait_for_budget(self) -> timedelta | None:
        """Take one send from the budgets. A duration says: there is none before."""
        if self._budgeted is None or not (wait := await self._budgets.take(self._budgeted)):
            return None
        metrics.SEND_WAITS.labels(self._budgeted.platform, "budget").inc()
        return wait

    async def asked_to_wait(self, part: Part, error: RateLimited) -> None:
        """The platform asked us to wait: the attempt does not count, and no worker sends there before."""
        metrics.SEND_WAITS.labels(part.to.platform, "platform").inc()
        await self.failed(part, str(error), asked_to_wait=True)
        if self._budgeted is not None:
            reach("deliver.before_hold")  # after a crash here the platform says it again
            await self._budgets.hold(self._budgeted, error.retry_after, whole_bot=error.whole_bot)

    async def denied(self, part: Part, error: Denied) -> None:
        """The platform refuses our credentials: the attempt does not count. If it takes nothing from this bot at all, no worker
        sends to any of its chats for a while, and then one send finds out for all of them."""
        platform = part.to.platform
        log.get().error("the platform refuses our credentials: replies wait", platform=platform, reason=str(error))
        await self.failed(part, str(error), asked_to_wait=True)
        if self._budgeted is None:
            return
        reach("deliver.before_refuse")  # after a crash here the platform says it again
        if isinstance(error, BotRefused):
            await self._budgets.refuse(self._budgeted)
        else:
            await self._budgets.answered(self._budgeted)

    async def answered(self) -> None:
        """The platform knows this bot, whatever it said about the part."""
        if self._budgeted is not None:
            await self._budgets.answered(self._budgeted)

    async def next(self) -> Part | None:
        """The part that is next, as one that is being sent from now on, or that somebody else was sending."""
        outbox, destination = self._outbox, self.lease.key
        while True:
            reach("deliver.before_sending")
            if (part := await self._kept(lambda: outbox.take(destination, self.lease.token))) is not None:
                return part
            waiting = await self._kept(lambda: outbox.open_parts(destination, 1))
            if not waiting or waiting[0].sending:
                return waiting[0] if waiting else None

    async def in_place(self, part: Part) -> Part:
        """The part as a change of its draft, if there is one. The draft came before it, so it was sent or will never be."""
        if part.draft is None:
            return part
        draft = await self._kept(lambda: self._drafts.find(part.draft or ""))
        return replace(part, edits=draft.receipt) if draft is not None and draft.receipt else part

    async def is_wanted(self, part: Part) -> bool:
        """False: a draft whose answer is finished."""
        return await self._kept(lambda: self._drafts.is_wanted(part))

    async def sending(self, part: Part) -> bool:
        return await self._kept(lambda: self._outbox.sending(part, self.lease.token))

    async def sent(self, part: Part, receipt: Receipt) -> None:
        await self._kept(lambda: self._outbox.sent(part, receipt.message_id))

    async def failed(self, part: Part, reason: str, *, asked_to_wait: bool = False) -> None:
        await self._kept(lambda: self._outbox.failed(part, reason, asked_to_wait=asked_to_wait))

    async def ambiguous(self, part: Part) -> None:
        metrics.AMBIGUOUS_SEND.labels(part.to.platform).inc()
        await self._kept(lambda: self._outbox.ambiguous(part))

    async def bury(self, part: Part, reason: ReplyReason, detail: str, *, closes_chat: bool = False) -> None:
        closed = self.lease.key if closes_chat else None
        await self._kept(lambda: self._outbox.bury(part, reason, detail, closed=closed))
        metrics.DEAD_LETTER.labels(f"reply {reason}").inc()
        log.get().error("reply buried", part=part.idempotency_key, reason=reason, detail=detail)

    async def is_first_lost(self, part: Part) -> bool:
        """Whether no other part of the same answer was given up like this one: the chat is told once of each answer. What
        a draft shows is not lost: the answer comes."""
        if is_draft(part):
            return False
        parts = await self._kept(lambda: self._outbox.of_turn(turn_of_part(part)))
        here = [row for row in parts if row["destination"] == self.lease.key and row["id"] != part.id]
        return not any(row["state"] == "buried" and row["reason"] == UNREACHABLE for row in here)

    async def refused(self, part: Part, error: Undeliverable) -> None:
        """Give the part up. A chat that takes nothing any more is remembered; a thread that is gone says nothing of its chat."""
        await self.bury(part, "refused", str(error), closes_chat=error.closes_chat and part.to.thread is None)

    async def opened(self) -> None:
        """A chat that was closed took a part: it is open again."""
        if await self._kept(lambda: self._closed_chats.open(self.lease.key)):
            log.get().info("a closed chat takes messages again", destination=self.lease.key)

    async def _kept(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        while True:
            try:
                return await ask()
            except Unavailable as error:
                if self.lease.lost:
                    raise
                log.get().warning("delivery waits for the database", key=self.lease.key, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)


async def deliver_parts(lease: Lease, deliveries: Deliveries) -> None:
    """Send what this destination waits for, until nothing does, or one part has to wait."""
    outgoing, rounds = Outgoing(lease, deliveries), 0
    while lease.mail:
        if not await lease.begin(lease.mail[0].seq):
            lease.lose()
            return
        done = [waiting.seq for waiting in lease.mail]
        last, sent, began = max(done), list[int](), monotonic()
        while (part := await outgoing.wait_for_budget() or await _next(outgoing)) is not None:
            if isinstance(part, timedelta):
                await _give_back(lease, sent, part)
                return
            with stage("delivery", part.to.platform, part.trace):
                wait = await (_resume(part, outgoing) if part.sending else _send(part, outgoing))
            if wait is not None:
                await _give_back(lease, sent, wait)
                return
            if lease.lost:
                return
            done.append(part.id)
            sent.append(part.id)
            if part.id >= last:
                break
            if monotonic() - began > LOOK_SECONDS:
                done = sent
                break
        rounds += 1
        over = rounds >= deliveries.pipe.settings.turns_per_lease
        await lease.acknowledge(done, limit=AT_ONCE, hand_over=over)


async def _give_back(lease: Lease, sent: list[int], delay: timedelta) -> None:
    """Give the destination back until later. What was sent leaves the mailbox first: mail without a part would take a send from
    the budget for nothing."""
    if sent:
        await lease.acknowledge(sent, limit=AT_ONCE)
    if not lease.ended:
        await lease.release(delay=delay, spent=False)


async def _next(outgoing: Outgoing) -> Part | timedelta | None:
    """The next part; or how long to leave it alone, because only a newer worker can read it."""
    try:
        return await outgoing.next()
    except TooNew as error:
        return delay_for_newer(outgoing.lease, error)


async def _resume(part: Part, outgoing: Outgoing) -> timedelta | None:
    """Send a part of which nobody saw whether it arrived, or do not."""
    settings = outgoing.settings
    if part.sending_for < settings.lease:  # Redis lost the lease of a worker that may still be sending: let it end
        return min(settings.lease - part.sending_for, settings.lease)
    sender = outgoing.senders.get(part.to.platform)
    await outgoing.ambiguous(part)
    if sender is not None and not _may_repeat(sender, settings):
        await outgoing.bury(part, "ambiguous", "an earlier attempt may have arrived")
        return None
    if part.counted >= settings.delivery_max_attempts:
        await outgoing.bury(part, "crashed", f"no end was seen of {part.counted} attempts")
        return None
    if not await outgoing.sending(part):
        return settings.lease  # another attempt began, by one that lost this lease: let it end before going on in order
    return await _send(part, outgoing)


async def _send(part: Part, outgoing: Outgoing) -> timedelta | None:
    """Make the attempt that is written down. A duration says: not now, and nothing behind it either."""
    settings, platform = outgoing.settings, part.to.platform
    if part.in_reply_to:
        correlate(message_id(part.source.platform, part.source.account, part.in_reply_to[-1]))
    sender = outgoing.senders.get(platform)
    if sender is None:
        await outgoing.bury(part, "no sender", f"no sender for {platform} is configured")
        return None
    if not await outgoing.is_wanted(part):
        await outgoing.sent(part, Receipt())
        return None
    if part.closed is not None and not part.is_answer:
        await outgoing.bury(part, CLOSED, part.closed)
        return None
    try:
        with stage("send", platform):
            receipt = await _attempt(sender, await outgoing.in_place(part))
    except Undeliverable as error:
        await outgoing.refused(part, error)
        await outgoing.answered()
        return None
    except Denied as error:
        await outgoing.denied(part, error)
        return REFUSED_WAIT
    except RateLimited as error:
        await outgoing.asked_to_wait(part, error)
        return max(
            error.retry_after, backoff(settings, part.counted + 1, spread=BACKOFF_SPREAD)
        )  # a platform may say "wait 0 s" for ever
    except Unavailable as error:  # of the place for blobs: the platform was not asked, or not to the end
        await outgoing.failed(part, str(error), asked_to_wait=True)
        log.get().warning("a reply waits for its file", part=part.idempotency_key, error=str(error))
        return backoff(settings, part.attempts + 1, spread=BACKOFF_SPREAD)
    except Transient as error:
        if isinstance(error, Ambiguous):
            await outgoing.ambiguous(part)
            if not _may_repeat(sender, settings):
                await outgoing.bury(part, "ambiguous", str(error))
                return None
        if part.counted + 1 >= settings.delivery_max_attempts:
            await outgoing.bury(part, UNREACHABLE, str(error))
            if await outgoing.is_first_lost(part) and await outgoing.wait_for_budget() is None:
                await tell_of_failure(sender, part)
            return None
        await outgoing.failed(part, str(error))
        log.get().warning("send failed", platform=platform, part=part.idempotency_key, error=str(error))
        return backoff(settings, part.counted + 1, spread=BACKOFF_SPREAD)
    reach("deliver.before_sent")
    await outgoing.sent(part, receipt)
    reach("deliver.after_sent")
    await outgoing.answered()
    if part.closed is not None:
        await outgoing.opened()
    metrics.DELIVERED.labels(platform).inc()
    log.get().info("delivered", part=part.idempotency_key, attempts=part.attempts + 1)
    return None


async def _attempt(sender: Sender, part: Part) -> Receipt:
    """Send or change the message. An error that no sender may raise is a fault of the sender's, and may have come after the
    platform took the message: it is reported and becomes Ambiguous, so the part does not stay `sending`."""
    try:
        return await (sender.send(part) if part.edits is None else _edit(sender, part))
    except (Undeliverable, Denied, Transient):
        raise
    except Exception as error:
        survived("delivery", "a sender failed", error, platform=part.to.platform, part=part.idempotency_key)
        raise Ambiguous(f"the sender failed: {type(error).__name__}: {error}") from error


async def _edit(sender: Sender, part: Part) -> Receipt:
    """Where nothing can be changed, what should be changed is said again."""
    return await (sender.edit(part) if isinstance(sender, Edits) else sender.send(part))


def _may_repeat(sender: Sender, settings: Settings) -> bool:
    return sender.idempotency is Idempotency.NATIVE or settings.resend_ambiguous
