"""Mode `reject`: a message that comes while a turn runs is refused, and its sender is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shared import log, metrics
from shared.control import parse
from shared.errors import AlreadyDone
from shared.failpoints import reach
from shared.lane import Lease
from shared.lane.lease import Waiting
from shared.messages import Mail, Reply
from shared.operating.keys import discard_mail
from workers.delivery.parts import in_parts
from workers.turn.busy.behind import people_behind
from workers.turn.parts import TurnParts

REASON = "busy"
REFUSED = "I am still working on an earlier message, so I did not take this one. Please send it again later."


async def reject_new(
    running: Sequence[Mail], waiting: Sequence[Waiting], after: int, lease: Lease, parts: TurnParts
) -> None:
    """Refuse the messages after that number: they came while the turn ran. Commands wait for their turn. Each is ended and its sender told in
    one transaction; a crash behind it leaves mail that the next holder of the key finds ended."""
    for mail in people_behind(running, waiting):
        if mail.seq > after and parse(mail.inbound.text) is None:
            await _reject(mail, lease, parts)


async def _reject(mail: Mail, lease: Lease, parts: TurnParts) -> None:
    replies = in_parts(mail.inbound.source.platform, (Reply(REFUSED),))
    reach("reject.before")
    if mail.journaled:  # it comes back if this fails; only the mailbox has the other kind
        await discard_mail(lease.lane, lease.key, mail.seq)
    try:
        rejected = await parts.pipe.store.reject_waiting(lease.key, mail, replies, REASON)
    except AlreadyDone:
        rejected = None
    reach("reject.after")
    if rejected is None:  # it has ended, or the turn has: then it is the next one's mail
        return
    metrics.ENDED["rejected"].inc()
    log.get().info("refused", key=lease.key, reason=REASON, message=mail.inbound.id)
    await discard_mail(lease.lane, lease.key, mail.seq)
    await asyncio.gather(*parts.publisher.publish(rejected.destination, rejected.outbox))
