"""What RQ leaves of a failed job, written without calling anything that the job names."""

from __future__ import annotations

import time

from shared.lane.rq_names import (
    FAILURE_TTL_SECONDS,
    RESULTS_KEPT,
    STATUS_FAILED,
    JobField,
    WorkerField,
    failed_key,
    failed_result,
    time_text,
)
from shared.lane.wake import StartedWake


async def record_failure(wake: StartedWake, reason: str) -> None:
    """Let RQ's readers see the wake as failed. All of it is written or nothing; the key is not touched."""
    ended = time.time()
    pipeline = wake.by.server.client.pipeline(transaction=True)
    pipeline.hset(wake.job_key, mapping={JobField.STATUS: STATUS_FAILED, JobField.ENDED_AT: time_text(ended)})
    pipeline.expire(wake.job_key, FAILURE_TTL_SECONDS)
    result = failed_result(wake.by.name, wake.execution, reason, wake.started, ended)
    pipeline.xadd(wake.results_key, result, maxlen=RESULTS_KEPT, approximate=False)
    pipeline.expire(wake.results_key, FAILURE_TTL_SECONDS)
    pipeline.zadd(failed_key(wake.queue), {wake.id: int(ended) + FAILURE_TTL_SECONDS})
    pipeline.delete(wake.execution_key)
    pipeline.zrem(wake.running_key, wake.running_entry)
    pipeline.zrem(wake.executions_key, wake.execution)
    pipeline.hincrby(wake.by.key, WorkerField.FAILED_COUNT, 1)
    pipeline.hincrbyfloat(wake.by.key, WorkerField.WORKING_TIME, ended - wake.started)
    await wake.by.server.asked(pipeline.execute())
