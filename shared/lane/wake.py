"""The RQ job that says "drain this key". Its hash is what RQ's own enqueue writes, plus one field of ours, `lane`."""

from __future__ import annotations

import time
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redis import Redis
from rq.job import Job, JobStatus

from shared import keys
from shared.codec import Serializer
from shared.ids import fresh_id
from shared.lane import rq_names
from shared.lane.rq_names import FAILURE_TTL_SECONDS, JobField, time_text
from shared.value import value

if TYPE_CHECKING:
    from shared.redis_servers import RedisServer

CALL_LIMIT = 65_536  # bytes; a wake's call is a function name and a key
_VARYING = (JobField.CREATED_AT, JobField.ENQUEUED_AT, JobField.DATA, JobField.ORIGIN)  # rq_enqueue.lua adds them


@value
class FreshWake:
    """A wake that a script may enqueue: its id, its queue, and what rq_enqueue.lua needs as KEYS and ARGV."""

    id: str
    partition: int
    queue: str
    keys: list[str]
    args: list[Any]


@value
class RegisteredWorker:
    """A worker as RQ knows it, on one Redis. What it starts counts as dead when it has not reported for the TTL."""

    server: RedisServer
    name: str
    key: str
    heartbeat_ttl_s: int


@value
class StartedWake:
    """A wake that a worker has started: in RQ's words a job and one execution of it."""

    id: str
    execution: str
    queue: str
    started: float  # seconds since 1970
    by: RegisteredWorker

    @property
    def job_key(self) -> str:
        return rq_names.job_key(self.id)

    @property
    def results_key(self) -> str:
        return rq_names.results_key(self.id)

    @property
    def running_key(self) -> str:
        return rq_names.running_key(self.queue)

    @property
    def running_entry(self) -> str:
        return rq_names.running_entry(self.id, self.execution)

    @property
    def execution_key(self) -> str:
        return rq_names.execution_key(self.id, self.execution)

    @property
    def executions_key(self) -> str:
        return rq_names.executions_key(self.id)

    def finish_keys(self) -> list[str]:
        """KEYS of rq_finish.lua."""
        return [
            self.job_key,
            self.results_key,
            rq_names.finished_key(self.queue),
            self.running_key,
            self.execution_key,
            self.executions_key,
            self.by.key,
        ]

    def finish_args(self, result_ttl_s: int) -> list[Any]:
        """ARGV of rq_finish.lua, ending now."""
        ended = time.time()
        times = [self.started, ended, time_text(ended)]
        return [self.id, self.execution, self.by.name, *times, result_ttl_s]


class WakeTemplate:
    """Makes the wakes of one lane. RQ fills in the fields, once; after that only id, times, queue and key vary."""

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
        fields = {**job.to_dict(), JobField.STATUS: JobStatus.QUEUED.value}
        for field in _VARYING:
            del fields[field]
        self._constant = Serializer.dumps([str(item) for pair in fields.items() for item in pair])

    def make(self, key: str, partition: int) -> FreshWake:
        """A wake for the key. Its id is new each time: RQ drops or doubles jobs whose ids come again."""
        queue, job_id = keys.queue_name(self.lane, partition), fresh_id()
        names = [rq_names.QUEUES, rq_names.queue_key(queue), rq_names.job_key(job_id)]
        now = time_text(time.time())
        args = [job_id, self._constant, now, _call(self._func_name, key), queue, key]
        return FreshWake(job_id, partition, queue, names, args)


@lru_cache(maxsize=4096)
def _call(func_name: str, key: str) -> bytes:
    return zlib.compress(Serializer.dumps([func_name, None, [key], {}]))


def called(data: bytes) -> tuple[str, list[Any]]:
    """The function name and the arguments in a job's data. ValueError for anything but what we write."""
    try:
        func_name, instance, args, kwargs = Serializer.loads(zlib.decompressobj().decompress(data, CALL_LIMIT))
    except zlib.error:
        raise ValueError("job data is not compressed") from None
    except (TypeError, ValueError):
        raise ValueError("job data is not a call") from None
    if instance is not None or kwargs or not isinstance(func_name, str) or not isinstance(args, list):
        raise ValueError("job data is not a wake")
    return func_name, args
