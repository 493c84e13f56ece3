"""The queues: per partition of a lane, the wakes that wait, since when, and what RQ's registries hold."""

from __future__ import annotations

from datetime import UTC, datetime

from shared import keys
from shared.lane.rq_names import JobField, failed_key, finished_key, job_key, popped_key, queue_key, running_key
from shared.pipeline import Pipeline
from shared.redis_servers import RedisServer
from shared.value import value


@value
class QueueState:
    """One partition of a lane. `oldest` is when the first waiting wake was put there: its key is ready and no worker has it."""

    lane: str
    queue: str
    waiting: int
    popped: int  # wakes that a worker has popped and not started
    running: int
    finished: int  # wakes that RQ still remembers
    failed: int
    oldest: datetime | None


async def all_queues(pipe: Pipeline) -> list[QueueState]:
    """Every queue of the deployment; Unavailable where a server does not answer that is not drained."""
    return [state for found in await pipe.servers.each(lambda server: queues_of(pipe, server)) for state in found]


async def queues_of(pipe: Pipeline, server: RedisServer) -> list[QueueState]:
    """The queues of one server, in two round trips, however much waits in them."""
    partitions = sorted(pipe.servers.partitions_of(server))
    names = [(lane.name, keys.queue_name(lane.name, partition)) for lane in pipe.lanes for partition in partitions]
    pipeline = server.client.pipeline(transaction=False)
    for _, queue in names:
        pipeline.llen(queue_key(queue))
        pipeline.llen(popped_key(queue))
        for registry in (running_key(queue), finished_key(queue), failed_key(queue)):
            pipeline.zcard(registry)
        pipeline.lindex(queue_key(queue), 0)
    answers = await server.asked(pipeline.execute())
    rows = [answers[start : start + 6] for start in range(0, len(answers), 6)]
    since = await _enqueued(server, [row[5] for row in rows if row[5] is not None])
    return [
        QueueState(lane, queue, waiting, popped, running, finished, failed, since.get(first))
        for (lane, queue), (waiting, popped, running, finished, failed, first) in zip(names, rows, strict=True)
    ]


async def _enqueued(server: RedisServer, jobs: list[bytes]) -> dict[bytes, datetime]:
    if not jobs:
        return {}
    pipeline = server.client.pipeline(transaction=False)
    for job in jobs:
        pipeline.hget(job_key(job.decode(errors="replace")), JobField.ENQUEUED_AT)
    times = await server.asked(pipeline.execute())
    return {job: at for job, text in zip(jobs, times, strict=True) if (at := _time(text)) is not None}


def _time(text: bytes | None) -> datetime | None:
    try:
        at = datetime.fromisoformat((text or b"").decode(errors="replace").replace("Z", "+00:00"))
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
