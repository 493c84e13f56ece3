"""What an error makes of a message: another attempt later, without a worker that waits for it, or a dead letter.

Nothing sticks: whatever fails at the head of a mailbox is counted, and in the end the messages behind it get their turn.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from shared import log, metrics
from shared.agent.turn import Result
from shared.clock import now_ms
from shared.dead_reasons import MessageReason
from shared.errors import AlreadyDone, Crashed, HeldBack, Outage, Permanent, Stopped, Superseded, TooNew, Unavailable
from shared.lane import Lease
from shared.settings import Settings
from workers.raised_at import RaisedElsewhere, raised_at
from workers.turn.attempt import Attempt, HeldKey
from workers.turn.conclude import NOTICE, bury, commit
from workers.turn.cut_short import cut_short
from workers.turn.open import leave_to_newer, open_barely
from workers.turn.outcome import REOPEN, AlreadyEnded, Outcome, Retry

REASON_OF: dict[type[Exception], MessageReason] = {
    Permanent: "refused",
    TimeoutError: "timeout",
    Crashed: "crashed",
}  # any other error: "error"
AWAY = "Sorry, the service that I need for an answer is not available. Please try again later."
DETAIL_CHARACTERS = 500


async def failed(attempt: Attempt, error: Exception) -> Outcome:
    """What becomes of an attempt that raised. Superseded, AlreadyDone and Unavailable say nothing about the message: they
    are raised on, and the attempt does not count."""
    settings, key = attempt.parts.pipe.settings, attempt.key
    match error:
        case Superseded() | AlreadyDone() | Unavailable():
            raise error
        case Stopped():  # /stop has its own answer: nothing more is said
            return await commit(cut_short(attempt, error.kept or Result()))
        case HeldBack():  # by a limit of our own: it waits as it would behind a long queue
            log.get().info("turn held back", key=key, provider=error.provider, wait_s=error.retry_after.total_seconds())
            return Retry(max(error.retry_after, backoff(settings, 1)), spent=False)
        case Outage():
            return await _wait_for_provider(attempt, error)
    reason: MessageReason = next((reason for kind, reason in REASON_OF.items() if isinstance(error, kind)), "error")
    name = error.name if isinstance(error, RaisedElsewhere) else type(error).__name__
    detail = (str(error) if isinstance(error, RaisedElsewhere) else f"{name}: {error}")[:DETAIL_CHARACTERS]
    place = {"at": at} if (at := raised_at(error)) is not None else {}
    log.get().warning("turn failed", key=key, reason=reason, error=name, attempt=attempt.number, **place)
    if attempt.number >= settings.max_attempts or isinstance(error, Permanent):
        notice = error.notice if isinstance(error, Permanent) else None
        return await commit(bury(attempt, reason, detail, notice or NOTICE))
    metrics.ENDED["failed"].inc()
    if attempt.mail.journaled:
        journal = attempt.parts.pipe.store.journal
        await journal.count_attempt(attempt.mail.inbound.id, attempt.number, f"{reason}: {detail}")
    # After a crash nothing outside needs time to recover.
    after = backoff(settings, 1) / 2 if isinstance(error, Crashed) else backoff(settings, attempt.number)
    return Retry(after, spent=True)


async def not_begun(held: HeldKey, error: Exception) -> Outcome:
    """What becomes of the first mail when something raised outside of an attempt. It is counted, too, and in the end the
    message is set aside with as little of its session as that needs. Unavailable is raised on."""
    lease, settings, waiting = held.lease, held.parts.pipe.settings, held.lease.mail[0]
    match error:
        case Superseded():
            metrics.FENCE_REJECTED.inc()
            log.get().warning("commit refused: the session had moved on", key=lease.key)
            return REOPEN
        case AlreadyDone():  # an earlier commit was kept without our hearing of it: the mail will be found ended
            return REOPEN
        case Unavailable():
            raise error
    if lease.ended:
        raise error
    number = lease.attempts_before(waiting.seq).begun + 1
    log.get().exception("message not opened", key=lease.key, attempt=number)
    retry = Retry(backoff(settings, number), spent=True)
    if number < settings.max_attempts:
        return retry
    try:
        opened = await open_barely(lease.key, waiting, held.parts.pipe.store)
    except TooNew as newer:
        return leave_to_newer(lease, newer)
    if isinstance(opened, AlreadyEnded):
        return opened
    if opened.restore_payload is not None:  # the attempts were counted for the mail behind it: it gets its own
        await lease.lane.put(lease.key, opened.mail.seq, opened.restore_payload)
        return retry
    mail, now = opened.mail, now_ms()
    attempt = Attempt(
        lease, held.parts, opened.session, mail, mail.inbound, number, held.claimed_at, now, may_have_run=True
    )
    return await commit(bury(attempt, "error", f"{type(error).__name__}: {error}"[:DETAIL_CHARACTERS]))


async def let_go(lease: Lease, settings: Settings, number: int) -> None:
    """Give the key back when attempt `number` is cancelled: by an operator, which counts, or because the worker ends."""
    if not lease.lost:
        after = backoff(settings, number) if lease.killed_by_operator else timedelta(0)
        await asyncio.shield(lease.release(delay=after, spent=lease.killed_by_operator))


async def _wait_for_provider(attempt: Attempt, outage: Outage) -> Outcome:
    """Try again when the provider may be back: the message did nothing wrong. It is set aside if that takes too long,
    and at once where the provider asks for more time than is left: the user is told now, not after it."""
    settings, asked = attempt.parts.pipe.settings, outage.retry_after
    # Redis knows how long it has been away; where Redis lost that, the journal does.
    away = max(attempt.lease.outage_before(attempt.mail.seq), timedelta(milliseconds=attempt.outage_ms or 0))
    limit, away_s = timedelta(seconds=settings.provider_outage_seconds), round(away.total_seconds(), 1)
    about = {"key": attempt.key, "provider": outage.provider, "status": outage.status, "error": str(outage)}
    if away >= limit or away + asked > limit:
        log.get().error("provider away for too long", **about, away_s=away_s)
        detail = f"{_who(outage)}: {outage}; away for {away_s:.0f} s"
        detail = f"{detail}, asks for {asked.total_seconds():.0f} s more"[:DETAIL_CHARACTERS]
        return await commit(bury(attempt, "provider", detail, AWAY))
    # As long again as it has been away already: the waits double.
    after = max(backoff(settings, 1), min(away, timedelta(seconds=settings.backoff_max_seconds)), asked)
    log.get().warning("turn waits for the provider", **about, away_s=away_s, again_in_s=after.total_seconds())
    metrics.ENDED["failed"].inc()
    if attempt.mail.journaled:
        away_ms = int(away.total_seconds() * 1000)
        reason = f"provider: {_who(outage)}: {outage}"[:DETAIL_CHARACTERS]
        await attempt.parts.pipe.store.journal.note_outage(attempt.mail.inbound.id, away_ms, reason)
    return Retry(after, spent=False, provider_away=True)


def _who(outage: Outage) -> str:
    return f"{outage.provider} {outage.status}" if outage.status else outage.provider


def backoff(settings: Settings, attempt: int) -> timedelta:
    """How long a message waits after so many attempts: twice as long each time, up to BACKOFF_MAX_SECONDS."""
    return timedelta(seconds=min(settings.backoff_seconds * 2 ** (attempt - 1), settings.backoff_max_seconds))
