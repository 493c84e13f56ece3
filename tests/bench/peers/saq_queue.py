"""saq, empty jobs in no order: its default of 10 at once. Results are not kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tests.bench.peers import program
from tests.bench.record import Record, wait_for_sign

saq: Any = import_module("saq")


def fill(url: str, arrivals: Iterator[tuple[int, int]]) -> None:
    async def put() -> None:
        queue = saq.Queue.from_url(url)
        for key, n in arrivals:
            await queue.enqueue("handle", key=f"{key}-{n}", chat=key, n=n, ttl=-1)
        await queue.disconnect()

    asyncio.run(put())


def work(url: str) -> None:
    record = Record.from_environment()

    async def handle(_: dict[str, Any], *, chat: int, n: int) -> None:
        record.job(chat, n)

    async def serve() -> None:
        worker = saq.Worker(saq.Queue.from_url(url), functions=[("handle", handle)])
        wait_for_sign()
        await worker.start()

    asyncio.run(serve())


if __name__ == "__main__":
    program.run(fill, work)
