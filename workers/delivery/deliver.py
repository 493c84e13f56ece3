"""Step 10: drain a destination. Parts leave one after another, in order; a failing one holds back those behind it.

`sending` is on disk before the call and the receipt after it. A crash between leaves a row in `sending`: whoever finds it
knows that it may have arrived, flags it, and sends it again where the platform recognises the key or the policy says so.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import timedelta

from shared import log, metrics
from shared.codec import message_id
from shared.errors import Ambiguous, RateLimited, Transient, Undeliverable
from shared.failpoints import reach
from shared.lane import Lease
from shared.messages import Part, Receipt
from shared.pipeline import Pipeline
from shared.settings import Settings
from shared.value import value
from workers.delivery import Idempotency, Sender

AT_ONCE = 50  # parts that are acknowledged together


@value
class Courier:
    """What a worker process delivers with."""

    pipe: Pipeline
    senders: Mapping[str, Sender]


async def deliver_parts(lease: Lease, courier: Courier) -> None:
    """Send what this destination waits for, until nothing does, or one part has to wait."""
    rounds = 0
    while lease.mail:
        if not await lease.begin(lease.mail[0].seq):
            lease.lose()
            return
        done = [waiting.seq for waiting in lease.mail]
        last = max(done)
        while (part := await _next(lease.key, courier)) is not None:
            wait = await (_resume(part, courier) if part.sending else _send(part, courier))
            if wait is not None:
                await lease.release(delay=wait, spent=False)
                return
            if lease.lost:
                return
            done.append(part.id)
            if part.id >= last:
                break
        rounds += 1
        over = rounds >= courier.pipe.settings.turns_per_lease
        await lease.acknowledge(done, limit=AT_ONCE, hand_over=over)


async def _next(destination: str, courier: Courier) -> Part | None:
    """The part that is next, as one that is being sent from now on, or that somebody else was sending."""
    outbox = courier.pipe.store.outbox
    while True:
        reach("deliver.before_sending")
        if (part := await outbox.take(destination)) is not None:
            return part
        waiting = await outbox.open_parts(destination, 1)
        if not waiting or waiting[0].sending:
            return waiting[0] if waiting else None


async def _resume(part: Part, courier: Courier) -> timedelta | None:
    """Send a part of which nobody saw whether it arrived, or do not."""
    outbox, settings = courier.pipe.store.outbox, courier.pipe.settings
    sender = courier.senders.get(part.source.platform)
    metrics.AMBIGUOUS_SEND.labels(part.source.platform).inc()
    await outbox.ambiguous(part)
    if sender is not None and not _may_repeat(sender, settings):
        await _bury(part, courier, "ambiguous", "an earlier attempt may have arrived")
        return None
    if part.attempts >= settings.delivery_max_attempts:
        await _bury(part, courier, "crashed", f"no end was seen of {part.attempts} attempts")
        return None
    if not await outbox.sending(part):
        return settings.lease  # another attempt began, by one that lost this lease: let it end before going on in order
    return await _send(part, courier)


async def _send(part: Part, courier: Courier) -> timedelta | None:
    """Make the attempt that is written down. A duration says: not now, and nothing behind it either."""
    outbox, settings = courier.pipe.store.outbox, courier.pipe.settings
    platform = part.source.platform
    if part.in_reply_to:
        log.correlation.set(message_id(platform, part.source.account, part.in_reply_to[-1]))
    sender = courier.senders.get(platform)
    if sender is None:
        await _bury(part, courier, "no sender", f"no sender for {platform} is configured")
        return None
    try:
        with metrics.SECONDS["send"].time():
            reach("deliver.before_send")
            receipt = await sender.send(part)
            reach("deliver.after_send")
    except Undeliverable as error:
        await _bury(part, courier, "refused", str(error))
        return None
    except RateLimited as error:
        await outbox.failed(part, str(error))
        return error.retry_after
    except Transient as error:
        if isinstance(error, Ambiguous):
            metrics.AMBIGUOUS_SEND.labels(platform).inc()
            await outbox.ambiguous(part)
            if not _may_repeat(sender, settings):
                await _bury(part, courier, "ambiguous", str(error))
                return None
        if part.attempts + 1 >= settings.delivery_max_attempts:
            await _bury(part, courier, "unreachable", str(error))
            return None
        await outbox.failed(part, str(error))
        log.get().warning("send failed", platform=platform, part=part.idempotency_key, error=str(error))
        return _backoff(part.attempts, settings.backoff_seconds, settings.backoff_max_seconds)
    await _sent(part, receipt, courier)
    return None


def _may_repeat(sender: Sender, settings: Settings) -> bool:
    return sender.idempotency is Idempotency.NATIVE or settings.resend_ambiguous


async def _sent(part: Part, receipt: Receipt, courier: Courier) -> None:
    reach("deliver.before_sent")
    await courier.pipe.store.outbox.sent(part, receipt.message_id)
    reach("deliver.after_sent")
    metrics.DELIVERED.labels(part.source.platform).inc()
    log.get().info("delivered", part=part.idempotency_key, attempts=part.attempts + 1)


async def _bury(part: Part, courier: Courier, reason: str, detail: str) -> None:
    await courier.pipe.store.outbox.bury(part, reason, detail)
    metrics.DEAD_LETTER.labels(f"reply {reason}").inc()
    log.get().error("reply buried", part=part.idempotency_key, reason=reason, detail=detail)


def _backoff(attempts: int, first_seconds: float, max_seconds: float) -> timedelta:
    return timedelta(seconds=min(first_seconds * 2 ** min(attempts, 20), max_seconds) * random.uniform(0.8, 1.2))
