"""How much work there is for workers: what an autoscaler asks."""

from __future__ import annotations

from datetime import UTC, datetime

from shared.lane_key import TURNS
from shared.pipeline import Pipeline
from shared.reading.queues import all_queues
from shared.value import value


@value
class WorkToScale:
    """Turns that run, keys that wait for a worker, and for how long the first of them has waited.

    A key that waits for its own running turn, or for a delay to pass, is not ready: no worker could help it.
    """

    running: int
    ready: int
    ready_seconds: float

    @property
    def work(self) -> int:
        """What workers are needed for: divided by what one worker should have, it is their number."""
        return self.running + self.ready


async def work_to_scale(pipe: Pipeline) -> WorkToScale:
    """Two round trips to each Redis server. Unavailable where one does not answer: half of the numbers would scale down."""
    queues = [queue for queue in await all_queues(pipe) if queue.lane == TURNS]
    oldest = min((queue.oldest for queue in queues if queue.oldest is not None), default=None)
    waited = (datetime.now(UTC) - oldest).total_seconds() if oldest is not None else 0.0
    ready = sum(queue.waiting + queue.popped for queue in queues)
    return WorkToScale(sum(queue.running for queue in queues), ready, round(max(0.0, waited), 3))
