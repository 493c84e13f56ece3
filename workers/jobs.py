"""The functions that RQ may call: this is the allow list. A job that names anything else is refused, whoever enqueued it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from shared.lane import Lease
from shared.lane_key import CONTROL, DELIVERIES, TURNS
from shared.pipeline import JOBS
from workers.delivery.deliver import deliver_parts
from workers.process.parts import ProcessParts
from workers.turn.control import answer_control
from workers.turn.take import take_turns as run_turns


async def take_turns(lease: Lease, parts: ProcessParts) -> None:
    """Answer the waiting mail of a session key."""
    await run_turns(lease, parts.runner)


async def deliver(lease: Lease, parts: ProcessParts) -> None:
    """Send the waiting replies of a destination."""
    await deliver_parts(lease, parts.deliveries)


async def control(lease: Lease, parts: ProcessParts) -> None:
    """Answer the waiting control messages of a session key, such as /stop."""
    await answer_control(lease, parts.runner)


ALLOWED: dict[str, Callable[[Lease, ProcessParts], Awaitable[None]]] = {
    JOBS[TURNS]: take_turns,
    JOBS[DELIVERIES]: deliver,
    JOBS[CONTROL]: control,
}
