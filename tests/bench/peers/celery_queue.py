"""Celery on Redis, empty jobs in no order: the solo pool, which is one process, no results, a large prefetch."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tests.bench.peers import program
from tests.bench.record import Record, wait_for_sign

celery: Any = import_module("celery")
signals: Any = import_module("celery.signals")


def _app(url: str, record: Record | None) -> tuple[Any, Any]:
    app = celery.Celery("bench", broker=url)
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=100, worker_hijack_root_logger=False)

    def handle(key: int, n: int) -> None:
        assert record is not None
        record.job(key, n)

    return app, app.task(handle, name="handle")


def fill(url: str, arrivals: Iterator[tuple[int, int]]) -> None:
    app, task = _app(url, None)
    with app.producer_pool.acquire(block=True) as producer:
        for pair in arrivals:
            task.apply_async(pair, producer=producer)


def work(url: str) -> None:
    record = Record.from_environment()
    app, _ = _app(url, record)
    signals.worker_ready.connect(lambda **_: wait_for_sign(), weak=False)
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    app.worker_main(["worker", "--pool", "solo", *quiet])


if __name__ == "__main__":
    program.run(fill, work)
