"""Loops that keep something alive go on whatever happens in them. What they survive is logged, and counted if unforeseen."""

from __future__ import annotations

import asyncio
from typing import Any

import redis

from shared import log, metrics
from shared.errors import PipelineError

CANCEL_AGAIN_SECONDS = 0.5


def survived(loop: str, what: str, error: Exception, **about: Any) -> None:
    """Report an error that `loop` goes on after; `what` says in a few words what did not happen because of it.

    A store that is away is a warning. Anything else is a fault of ours or of whoever writes to our stores: it is logged
    with its stack trace and counted in `keyturn_loop_errors_total`.
    """
    if _foreseen(error):
        log.get().warning(what, error=f"{type(error).__name__}: {error}", **about)
    else:
        metrics.LOOP_ERRORS.labels(loop).inc()
        log.get().error(what, loop=loop, exc_info=error, **about)


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel the tasks and wait until all of them are over, whatever they end with.

    A cancellation can get lost: Python 3.11's `asyncio.wait_for`, which redis-py writes with, drops one that comes in the
    moment in which the write is done. So a task that is not over is cancelled again.
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=CANCEL_AGAIN_SECONDS)


def _foreseen(error: Exception) -> bool:
    if isinstance(error, redis.ResponseError):
        return False
    return isinstance(error, PipelineError | redis.RedisError | OSError | TimeoutError)
