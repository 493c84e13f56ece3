"""Loops that keep something alive go on whatever happens in them. What they survive is logged, and counted if unforeseen."""

from __future__ import annotations

from typing import Any

import redis

from shared import log, metrics
from shared.errors import PipelineError


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


def _foreseen(error: Exception) -> bool:
    if isinstance(error, redis.ResponseError):
        return False
    return isinstance(error, PipelineError | redis.RedisError | OSError | TimeoutError)
