"""Hands for the stages of a turn: bring a key's first message as far as the stage that a test is about."""

from __future__ import annotations

from typing import Any

from shared.clock import now_ms
from shared.lane import Lease
from shared.lane.session_lock import SessionLock
from shared.messages import Session
from tests.support.pipe import Rig
from workers.turn.attempt import Attempt, HeldKey
from workers.turn.decide import begin, decide
from workers.turn.open import Opened, open_first
from workers.turn.outcome import Conclusion
from workers.turn.parts import TurnParts
from workers.turn.run import take_run_up


def held(rig: Rig, lease: Lease, *, session: Session | None = None, parts: TurnParts | None = None) -> HeldKey:
    """The key of a lease, as take_turns holds it."""
    return HeldKey(lease, parts or rig.parts(), SessionLock(lease, rig.pipe.store.journal, 10), now_ms(), session)


async def hold(rig: Rig, text: str = "hello", **about: Any) -> HeldKey:
    """Accept a message and hold its key."""
    await rig.accept(text, **about)
    return held(rig, await rig.lease())


async def opened(key: HeldKey) -> Opened:
    found = await open_first(key)
    assert isinstance(found, Opened), found
    return found


async def begun(key: HeldKey) -> Attempt:
    """An attempt at the first message that has begun."""
    attempt = await begin(key, await opened(key))
    assert isinstance(attempt, Attempt), attempt
    return attempt


async def decided(key: HeldKey) -> Attempt:
    """An attempt that is to run an agent."""
    attempt = await decide(await begun(key))
    assert isinstance(attempt, Attempt), attempt
    return await take_run_up(attempt)


def ending(conclusion: object) -> tuple[str, str | None, int]:
    """How the mail of a conclusion is to end: its state, the reason, the attempts."""
    assert isinstance(conclusion, Conclusion), conclusion
    commit = conclusion.commit
    return commit.ending.state.value, commit.ending.reason, commit.proof.attempts


def replies(conclusion: object) -> list[str]:
    """What the chat is to be told."""
    assert isinstance(conclusion, Conclusion), conclusion
    return [reply.text for reply in conclusion.commit.replies]
