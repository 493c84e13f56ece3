"""Plain RQ with the usual recipe: take a lock per key, and put the job back when somebody else has it.

RQ_WORKER=Worker is the stock worker, which forks for every job; SimpleWorker runs jobs in its own process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from redis import Redis

from tests.bench.peers import program
from tests.bench.record import Record, wait_for_sign

rq: Any = import_module("rq")
QUEUE = "bench"
LOCK_SECONDS = 60
AT_ONCE = 500  # jobs per pipeline when filling

_record: Record | None = None


def handle(key: int, n: int) -> None:
    """The job. It runs the message only under its key's lock."""
    job = rq.get_current_job()
    connection = job.connection
    record = _record or Record.from_environment()
    if not connection.set(f"lock:{key}", "1", nx=True, ex=LOCK_SECONDS):
        record.retry(key, n)
        rq.Queue(QUEUE, connection=connection).enqueue(handle, key, n, result_ttl=0)
        return
    try:
        record.job(key, n)
    finally:
        connection.delete(f"lock:{key}")


def fill(url: str, arrivals: Iterator[tuple[int, int]]) -> None:
    queue = rq.Queue(QUEUE, connection=Redis.from_url(url))
    path = "tests.bench.peers.rq_recipe.handle"
    jobs = [rq.Queue.prepare_data(path, args=pair, result_ttl=0) for pair in arrivals]
    for start in range(0, len(jobs), AT_ONCE):
        queue.enqueue_many(jobs[start : start + AT_ONCE])


def work(url: str) -> None:
    from tests.bench.peers import rq_recipe  # the module as RQ imports it, not __main__

    connection = Redis.from_url(url)
    worker = getattr(rq, os.environ["RQ_WORKER"])([QUEUE], connection=connection)
    worker.log_job_description = False
    rq_recipe._record = Record.from_environment()
    wait_for_sign()
    worker.work(logging_level="ERROR")


if __name__ == "__main__":
    program.run(fill, work)
