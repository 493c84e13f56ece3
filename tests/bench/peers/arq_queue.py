"""arq: empty jobs in no order, or, with ARQ_RECIPE=1, a lock per key and a retry when somebody else has it.

With ARQ_DEFAULTS=1 it runs as it comes. Without, as many jobs at once as Keyturn's default and a short poll, because with
its own 10 jobs and 0.5 s it mostly waits. Results are not kept.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tests.bench.peers import program
from tests.bench.record import Record, wait_for_sign

arq: Any = import_module("arq")
connections: Any = import_module("arq.connections")
LOCK_SECONDS = 60
RETRY_SECONDS = 0.02
AT_ONCE = 200


async def run_unordered(ctx: dict[str, Any], key: int, n: int) -> None:
    ctx["record"].job(key, n)


async def run_locked(ctx: dict[str, Any], key: int, n: int) -> None:
    if not await ctx["redis"].set(f"lock:{key}", "1", nx=True, ex=LOCK_SECONDS):
        ctx["record"].retry(key, n)
        raise arq.Retry(defer=RETRY_SECONDS)
    try:
        ctx["record"].job(key, n)
    finally:
        await ctx["redis"].delete(f"lock:{key}")


FUNCTION = run_locked if os.environ.get("ARQ_RECIPE") else run_unordered


def fill(url: str, arrivals: Iterator[tuple[int, int]]) -> None:
    async def put() -> None:
        pool = await arq.create_pool(connections.RedisSettings.from_dsn(url))
        for key, n in arrivals:
            await pool.enqueue_job(FUNCTION.__name__, key, n)
        await pool.aclose()

    asyncio.run(put())


def work(url: str) -> None:
    record = Record.from_environment()
    worker = arq.Worker(
        [FUNCTION],
        redis_settings=connections.RedisSettings.from_dsn(url),
        **({} if os.environ.get("ARQ_DEFAULTS") else {"max_jobs": AT_ONCE, "poll_delay": 0.01}),
        max_tries=1000,
        keep_result=0,
        log_results=False,
        ctx={"record": record},
    )
    wait_for_sign()
    worker.run()


if __name__ == "__main__":
    program.run(fill, work)
