"""Step 9: what Redis is told when mail has ended, or is to be tried again."""

from __future__ import annotations

import asyncio

from shared.clock import now_ms
from shared.lane import Lease
from shared.stages import stage
from workers.turn.attempt import HeldKey
from workers.turn.outcome import Done, Retry


async def acknowledge(held: HeldKey, done: Done) -> HeldKey:
    """Tell delivery of the replies and take the next mail, in one round trip. After TURNS_PER_LEASE turns the key is handed
    over, so that no key starves others. If Redis is away or the worker dies, the housekeeper does both later."""
    lease, pipe, committed, turns = held.lease, held.parts.pipe, done.committed, held.turns + 1
    with stage("acknowledge"):
        publish = held.parts.publisher.publish
        puts = [put for place, rows in committed.by_destination.items() for put in publish(place, rows)]
        try:
            await lease.acknowledge(done.seqs, limit=1, hand_over=turns >= pipe.settings.turns_per_lease)
        finally:
            if not all(put.done() for put in puts):  # the destination may live on another Redis server
                await asyncio.wait(puts)
            for error in [error for put in puts if (error := put.exception()) is not None]:
                raise error
    session = None if committed.changed else committed.session
    return HeldKey(lease, held.parts, held.lock, now_ms(), session, turns)


async def give_back(lease: Lease, retry: Retry) -> None:
    """Leave the key with its mail to whoever is woken after the delay, which Redis keeps: no worker waits for it."""
    if not lease.ended:
        await lease.release(delay=retry.after, spent=retry.spent, outage=retry.provider_away)
