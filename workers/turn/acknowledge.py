"""Step 9: what Redis is told when mail has ended, or is to be tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from shared.clock import now_ms
from shared.lane import Lease
from shared.stages import stage
from workers.turn.attempt import HeldKey
from workers.turn.outcome import Kept, Retry
from workers.turn.parts import TurnParts


async def acknowledge(held: HeldKey, done: Kept) -> HeldKey:
    """Tell delivery of the replies and take the next mail, in one round trip. After TURNS_PER_LEASE turns the key is handed
    over, so that no key starves others. If Redis is away or the worker dies, the housekeeper does both later."""
    committed, turns = done.committed, held.turns + 1
    await publish_and_acknowledge(held.lease, held.parts, committed.by_destination, done.seqs, turns)
    session = None if committed.changed else committed.session
    return HeldKey(held.lease, held.parts, held.lock, now_ms(), session, turns)


async def publish_and_acknowledge(
    lease: Lease, parts: TurnParts, replies: Mapping[str, Sequence[int]], seqs: Sequence[int], turns: int
) -> None:
    """The same for outbox rows by destination; `turns` have ended under this lease."""
    with stage("acknowledge"):
        puts = [put for place, rows in replies.items() for put in parts.publisher.publish(place, rows)]
        try:
            await lease.acknowledge(seqs, limit=1, hand_over=turns >= parts.pipe.settings.turns_per_lease)
        finally:
            if not all(put.done() for put in puts):  # the destination may live on another Redis server
                await asyncio.wait(puts)
            for error in [error for put in puts if (error := put.exception()) is not None]:
                raise error


async def give_back(lease: Lease, retry: Retry) -> None:
    """Leave the key with its mail to whoever is woken after the delay, which Redis keeps: no worker waits for it."""
    if not lease.ended:
        await lease.release(delay=retry.after, spent=retry.spent, outage=retry.provider_away)
