"""Steps 5 to 9 of a message's path. This file is the spine: it calls the stages in order and acts on what they return.

A crash before the commit leaves the mail where it was, and the next holder of the key begins again. A crash after it leaves
mail that the next holder finds committed, and drops. Only the commit decides, and it succeeds once.
"""

from __future__ import annotations

import asyncio

from shared.clock import now_ms
from shared.lane import Lease
from shared.lane.session_lock import SessionLock
from shared.stages import stage
from workers.turn.acknowledge import acknowledge, give_back
from workers.turn.attempt import Attempt, HeldKey
from workers.turn.conclude import commit, conclude
from workers.turn.decide import begin, decide
from workers.turn.fail import failed, let_go, not_begun
from workers.turn.files import fetch_files
from workers.turn.open import Opened, open_first
from workers.turn.outcome import AlreadyEnded, Conclusion, Kept, Outcome, Reopen, Retry
from workers.turn.parts import TurnParts
from workers.turn.run import make_room, prepare, run, take_run_up


async def take_turns(lease: Lease, parts: TurnParts) -> Outcome:
    """Run a key's turns until it is idle, handed over, given back or another's. Twice for the same mail commits once."""
    parts, heartbeat = parts.for_key(lease.key), parts.pipe.settings.heartbeat
    held = HeldKey(lease, parts, SessionLock(lease, parts.pipe.store.journal, heartbeat.total_seconds()), now_ms())
    try:
        while True:
            match outcome := await take_first(held):
                case Kept():
                    held = await acknowledge(held, outcome)
                case AlreadyEnded():
                    await lease.acknowledge(outcome.seqs, limit=1)
                case Reopen():
                    held = held.unloaded()
                case Retry():
                    await give_back(lease, outcome)
            if lease.ended:
                return outcome
    finally:
        await held.lock.give_back()


async def take_first(held: HeldKey) -> Outcome:
    """Bring the first mail to an outcome. Every error becomes one, unless a store of ours is away."""
    try:
        opened = await open_first(held)
        if not isinstance(opened, Opened):
            return opened
        inbound = opened.mail.inbound
        with stage("turn", inbound.source.platform, inbound.trace):
            step: Attempt | Conclusion | Outcome = await begin(held, opened)
            if isinstance(step, Attempt):
                step = await answer(step)
            return await commit(step) if isinstance(step, Conclusion) else step
    except Exception as error:
        return await not_begun(held, error)


async def answer(attempt: Attempt) -> Outcome:
    """Bring an attempt that has begun to its commit. Every error counts against the message, unless a store is away."""
    try:
        step = await decide(attempt)
        if isinstance(step, Attempt):
            attempt = await fetch_files(step)
            attempt = await make_room(attempt)
            attempt = await take_run_up(attempt)
            prepared = await prepare(attempt)
            step = conclude(prepared, await run(prepared))
        return await commit(step) if isinstance(step, Conclusion) else step
    except asyncio.CancelledError:
        await let_go(attempt.lease, attempt.parts.pipe.settings, attempt.number)
        raise
    except Exception as error:
        return await failed(attempt, error)
