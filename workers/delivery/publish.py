"""Tells delivery of the replies that a turn committed. The worker that wrote a reply also delivers it, if it has room.

If the process dies between the commit and this, the housekeeper finds outbox rows that no mailbox knows and publishes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from shared.lane import Lane

StartWake = Callable[[str], bool]  # given a job id, says whether it runs the wake; it then starts it within this tick


class Publisher:
    """Puts outbox rows into their destination's mailbox. Publishing a row twice changes nothing."""

    def __init__(self, deliveries: Lane) -> None:
        self._deliveries = deliveries
        self._starts: dict[str, StartWake] = {}

    def deliver_here(self, queue: str, start: StartWake) -> None:
        """From now on offer the wakes of this queue to `start`, so that they need not wait to be popped."""
        self._starts[queue] = start

    def publish(self, destination: str, part_ids: Sequence[int]) -> list[asyncio.Future[int]]:
        """Publish these rows of one destination: they travel with what else this tick of the event loop sends.

        Only the first is offered to this process: whoever delivers it sends the others too.
        """
        lane, published = self._deliveries, list[asyncio.Future[int]]()
        for part_id in part_ids:
            wake = lane.fresh_wake(destination)
            start = self._starts.get(wake.queue) if not published else None
            popped = start is not None and start(wake.id)
            published.append(lane.put_soon(destination, part_id, str(part_id).encode(), wake, popped=popped))
        return published
