"""RQ's names in Redis and the fields behind them. Only this module spells them; everything else imports from here.

rq:queues                        set: the keys of all queues
rq:queue:<queue>                 list of job ids: wakes that wait
rq:queue:<queue>:intermediate    list of job ids: wakes that a worker has popped and not started
rq:job:<job>                     hash: a job. For us a job is a wake
rq:execution:<job>:<execution>   hash with a TTL: one run of a job, which its worker's heartbeat keeps alive
rq:executions:<job>              sorted set: a job's executions, by the time at which they count as dead
rq:wip:<queue>                   sorted set `<job>:<execution>`, by the same time: what runs now
rq:finished:<queue>              sorted set: jobs that ended well, by the time at which they are forgotten
rq:failed:<queue>                sorted set: jobs that failed, by the same time
rq:results:<job>                 stream: how the job's runs ended
rq:workers, rq:workers:<queue>   sets: the keys of all workers, and of those that serve a queue
rq:worker:<worker>               hash: a worker
rq:pubsub:<worker>               channel: commands to one worker
rq:suspended                     exists while `rq suspend` stops all workers from taking jobs

The Lua scripts beside this module are given key names through KEYS and ARGV; the fields of the hashes that they write
(rq_enqueue.lua, start.lua, rq_finish.lua, abandon.lua) are spelled there. tests/unit/test_rq_names.py compares the names
below with RQ's own, tests/lane/test_contract.py compares all that we write with what RQ itself writes.
"""

from __future__ import annotations

import base64
import zlib
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

EVERYTHING = "rq:*"  # all names of RQ, as a pattern
OF_QUEUES = r"rq:(?:queue|wip|finished|failed|deferred|scheduled|canceled):(?P<queue>.*?)(?::intermediate)?"  # all that are of one queue
QUEUES = "rq:queues"
WORKERS = "rq:workers"
SUSPENDED = "rq:suspended"
QUEUE_PREFIX = "rq:queue:"
JOB_PREFIX = "rq:job:"
EXECUTION_PREFIX = "rq:execution:"
EXECUTIONS_PREFIX = "rq:executions:"
WORKER_PREFIX = "rq:worker:"
CHANNEL_PREFIX = "rq:pubsub:"
FAILURE_TTL_SECONDS = 24 * 3600  # RQ's default is a year


class JobField:
    """Fields of a job's hash."""

    STATUS = "status"
    CREATED_AT = "created_at"
    ENQUEUED_AT = "enqueued_at"
    ENDED_AT = "ended_at"
    DATA = "data"
    ORIGIN = "origin"
    WORKER_NAME = "worker_name"


class WorkerField:
    """Fields of a worker's hash. `running`, `capacity` and `slots` are ours: RQ's own workers have one job at a time."""

    BIRTH = "birth"
    LAST_HEARTBEAT = "last_heartbeat"
    STATE = "state"
    QUEUES = "queues"
    FAILED_COUNT = "failed_job_count"
    WORKING_TIME = "total_working_time"
    RUNNING = "running"
    CAPACITY = "capacity"
    SLOTS = "slots"  # by lane, used and there: "turns:3/200,control:0/16"


EXECUTION_HEARTBEAT = "last_heartbeat"  # field of an execution's hash
STATUS_FAILED = "failed"
RESULTS_KEPT = 10  # per job


def queue_key(queue: str) -> str:
    return QUEUE_PREFIX + queue


def popped_key(queue: str) -> str:
    """The intermediate list: wakes stay here from the pop to the start, so a worker that dies between loses none."""
    return f"{QUEUE_PREFIX}{queue}:intermediate"


def job_key(job_id: str) -> str:
    return JOB_PREFIX + job_id


def results_key(job_id: str) -> str:
    return f"rq:results:{job_id}"


def execution_key(job_id: str, execution_id: str) -> str:
    return f"{EXECUTION_PREFIX}{job_id}:{execution_id}"


def executions_key(job_id: str) -> str:
    return EXECUTIONS_PREFIX + job_id


def running_key(queue: str) -> str:
    return f"rq:wip:{queue}"


def running_entry(job_id: str, execution_id: str) -> str:
    """How a run is named in the registry of what runs."""
    return f"{job_id}:{execution_id}"


def finished_key(queue: str) -> str:
    return f"rq:finished:{queue}"


def failed_key(queue: str) -> str:
    return f"rq:failed:{queue}"


def registry_keys(queue: str) -> list[str]:
    """The registries of a queue that our wakes pass through. KEYS of abandon.lua."""
    return [running_key(queue), failed_key(queue), finished_key(queue)]


def workers_of_queue(queue: str) -> str:
    return f"rq:workers:{queue}"


def worker_key(worker: str) -> str:
    return WORKER_PREFIX + worker


def time_text(at: float) -> str:
    """A time in seconds since 1970 as RQ writes it into hashes, to the microsecond."""
    second, micros = divmod(round(at * 1_000_000), 1_000_000)
    return f"{_second_text(second)}.{micros:06}Z"


@lru_cache(maxsize=8)  # two or three of these for each message: 1 µs instead of 6
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def failed_result(worker: str, execution_id: str, reason: str, started: float, ended: float) -> dict[Any, Any]:
    """The entry of a result stream that says why a run failed."""
    return {
        "type": 2,
        "worker_name": worker,
        "exc_string": base64.b64encode(zlib.compress(reason.encode())).decode(),
        "execution_id": execution_id,
        "execution_started_at": started,
        "execution_ended_at": ended,
    }
