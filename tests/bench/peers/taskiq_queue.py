"""taskiq on Redis, empty jobs in no order: TASKIQ_BROKER=RedisStreamBroker (acknowledges) or ListQueueBroker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tests.bench.peers import program
from tests.bench.record import Record, wait_for_sign

taskiq_redis: Any = import_module("taskiq_redis")
receiving: Any = import_module("taskiq.api")
AT_ONCE = 200


def _broker(url: str, record: Record | None) -> tuple[Any, Any]:
    options = {"consumer_id": "0"} if os.environ["TASKIQ_BROKER"] == "RedisStreamBroker" else {}
    broker = getattr(taskiq_redis, os.environ["TASKIQ_BROKER"])(url, **options)

    async def handle(key: int, n: int) -> None:
        assert record is not None
        record.job(key, n)

    return broker, broker.register_task(handle, task_name="handle")


def fill(url: str, arrivals: Iterator[tuple[int, int]]) -> None:
    async def put() -> None:
        broker, task = _broker(url, None)
        await broker.startup()
        for key, n in arrivals:
            await task.kiq(key, n)
        await broker.shutdown()

    asyncio.run(put())


def work(url: str) -> None:
    record = Record.from_environment()

    async def serve() -> None:
        broker, _ = _broker(url, record)
        wait_for_sign()
        await receiving.run_receiver_task(broker, max_async_tasks=AT_ONCE, run_startup=True)

    asyncio.run(serve())


if __name__ == "__main__":
    program.run(fill, work)
