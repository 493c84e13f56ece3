"""The RQ job that says "drain this key". Its hash is what RQ's own enqueue would write, plus one field, `lane`."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from redis import Redis
from rq.job import Job, JobStatus
from rq.queue import Queue

from shared import keys
from shared.codec import Serializer
from shared.ids import fresh_id
from shared.value import value

QUEUES = Queue.redis_queues_keys
JOB_PREFIX = Job.redis_job_namespace_prefix
FAILURE_TTL_SECONDS = 24 * 3600
CALL_LIMIT = 65_536  # bytes; a wake's call is a function name and a key


def queue_key(name: str) -> str:
    return Queue.redis_queue_namespace_prefix + name


def popped_key(queue: str) -> str:
    """Where RQ's workers keep what they popped until they start it."""
    return queue_key(queue) + ":intermediate"


def stamp(at: datetime) -> str:
    """RQ's text form of a time."""
    return at.isoformat(timespec="microseconds")[:26] + "Z"


@value
class Running:
    """A started wake: what RQ calls a job, one execution of it, and the worker that has it."""

    id: str
    execution: str
    worker_key: str
    worker_name: str
    queue: str
    started: datetime

    def names(self) -> list[str]:
        """KEYS of rq_finish.lua."""
        return [
            JOB_PREFIX + self.id,
            f"rq:results:{self.id}",
            f"rq:finished:{self.queue}",
            f"rq:wip:{self.queue}",
            f"rq:execution:{self.id}:{self.execution}",
            f"rq:executions:{self.id}",
            self.worker_key,
        ]

    def finish_args(self, result_ttl_s: int) -> list[Any]:
        """ARGV of rq_finish.lua, ending now."""
        ended = datetime.now(UTC)
        times = [self.started.timestamp(), ended.timestamp(), stamp(ended)]
        return [self.id, self.execution, self.worker_name, *times, result_ttl_s]


class WakeTemplate:
    """Makes the wakes of one lane. RQ itself fills in the fields, once; only id, times, queue and key vary after that."""

    def __init__(self, func_name: str, lane: str, *, timeout_s: int, result_ttl_s: int) -> None:
        self._func_name = func_name
        self.lane = lane
        self.result_ttl_s = result_ttl_s
        job = Job.create(
            func_name,
            args=("",),
            connection=Redis(),  # never used: the job is only asked for its fields
            serializer=Serializer,
            result_ttl=result_ttl_s,
            failure_ttl=FAILURE_TTL_SECONDS,
            timeout=timeout_s,
            description=f"drain a key of {lane}",  # fixed text: dashboards show it unescaped
            status=JobStatus.QUEUED,
            origin=lane,
        )
        job.enqueued_at = job.created_at
        fields = {**job.to_dict(), "status": JobStatus.QUEUED.value}
        for varying in ("created_at", "enqueued_at", "data", "origin"):
            del fields[varying]
        self._constant = Serializer.dumps([str(item) for pair in fields.items() for item in pair])

    def make(self, key: str, partition: int) -> tuple[list[str], list[Any]]:
        """KEYS and ARGV of rq_enqueue.lua. Never a deterministic id: RQ drops or doubles those."""
        queue, job_id = keys.queue_name(self.lane, partition), fresh_id()
        names = [QUEUES, queue_key(queue), JOB_PREFIX + job_id]
        return names, [job_id, self._constant, stamp(datetime.now(UTC)), _call(self._func_name, key), queue, key]


@lru_cache(maxsize=4096)
def _call(func_name: str, key: str) -> bytes:
    return zlib.compress(Serializer.dumps([func_name, None, [key], {}]))


def is_call(data: bytes, func_name: str, key: str) -> bool:
    """Whether a job's data is just what `make` writes for this key: quicker to see than to read."""
    return data == _call(func_name, key)


def called(data: bytes) -> tuple[str, list[Any]]:
    """The function name and arguments in a job's data; ValueError when it is nothing that we write."""
    try:
        func_name, instance, args, kwargs = Serializer.loads(zlib.decompressobj().decompress(data, CALL_LIMIT))
    except zlib.error:
        raise ValueError("job data is not compressed") from None
    except (TypeError, ValueError):
        raise ValueError("job data is not a call") from None
    if instance is not None or kwargs or not isinstance(func_name, str) or not isinstance(args, list):
        raise ValueError("job data is not a wake")
    return func_name, args
