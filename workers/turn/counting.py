"""Counting an attempt at the first mail of a key, before it can take its worker along."""

from __future__ import annotations

from shared.lane import Lease
from shared.value import value
from workers.turn.outcome import LOST, Lost

CRASH_FACTOR = 4  # give up after 4 × MAX_ATTEMPTS attempts whose worker died


@value
class Begun:
    """An attempt that is counted: it may begin."""

    number: int  # 1 for the first
    isolated: bool  # an attempt before this one may have killed its worker


@value
class GivenUp:
    """So many attempts came to no end that the mail gets no other."""

    attempts: int


async def begin_attempt(
    lease: Lease, seq: int, *, journaled: int, restore_payload: bytes | None, max_attempts: int
) -> Begun | GivenUp | Lost:
    """Count an attempt at this mail. `journaled` are the attempts that the journal knows of; `restore_payload` is the mail
    itself, where the mailbox lost it."""
    if restore_payload is not None:
        # Redis counts attempts for the mailbox's first entry only, so put the missing message back first.
        await lease.lane.put(lease.key, seq, restore_payload)
    begun, failed = lease.attempts_before(seq)
    before = max(begun, journaled)
    if before >= max_attempts * CRASH_FACTOR:
        return GivenUp(before)
    if not await lease.begin(seq):
        lease.lose()
        return LOST
    # An attempt whose end nobody saw may have killed its worker.
    return Begun(before + 1, isolated=begun > failed)
