"""dramatiq on Redis, empty jobs in no order: its default of 8 threads in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tests.bench.peers import program
from tests.bench.record import Record, wait_for_sign

dramatiq: Any = import_module("dramatiq")
brokers: Any = import_module("dramatiq.brokers.redis")


def _actor(url: str, record: Record | None) -> tuple[Any, Any]:
    broker = brokers.RedisBroker(url=url)
    dramatiq.set_broker(broker)

    def handle(key: int, n: int) -> None:
        assert record is not None
        record.job(key, n)

    return broker, dramatiq.actor(handle, actor_name="handle")


def fill(url: str, arrivals: Iterator[tuple[int, int]]) -> None:
    _, actor = _actor(url, None)
    for key, n in arrivals:
        actor.send(key, n)


def work(url: str) -> None:
    record = Record.from_environment()
    broker, _ = _actor(url, record)
    worker = dramatiq.Worker(broker, worker_threads=8)
    wait_for_sign()
    worker.start()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    program.run(fill, work)
