"""The functions that RQ may call: this is the allow list. A job that names anything else is refused, whoever enqueued it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from shared.lane import Lease
from shared.lane_key import CONTROL, DELIVERIES, TURNS
from shared.pipeline import JOBS
from workers.delivery.deliver import deliver_parts
from workers.process.parts import Crew
from workers.turn.take import take_turns as run_turns


async def take_turns(lease: Lease, crew: Crew) -> None:
    await run_turns(lease, crew.runner)


async def deliver(lease: Lease, crew: Crew) -> None:
    await deliver_parts(lease, crew.courier)


async def control(lease: Lease, crew: Crew) -> None:
    await run_turns(lease, crew.runner)


ALLOWED: dict[str, Callable[[Lease, Crew], Awaitable[None]]] = {
    JOBS[TURNS]: take_turns,
    JOBS[DELIVERIES]: deliver,
    JOBS[CONTROL]: control,
}
