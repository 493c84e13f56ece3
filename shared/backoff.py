"""How long to wait after a failure, written once: twice as long after each, up to a limit."""

from __future__ import annotations

import random
from datetime import timedelta

from shared.settings import Settings

_DOUBLINGS = 20  # beyond these the limit has long been reached


def backoff(settings: Settings, failures: int, *, spread: float = 0.0) -> timedelta:
    """The wait after so many failures in a row: BACKOFF_SECONDS after the first, at most BACKOFF_MAX_SECONDS.

    `spread` makes it up to that share longer or shorter, so that many who failed together do not come back together.
    """
    doubled = settings.backoff_seconds * 2 ** min(max(failures - 1, 0), _DOUBLINGS)
    seconds = min(doubled, settings.backoff_max_seconds)
    return timedelta(seconds=seconds * random.uniform(1 - spread, 1 + spread) if spread else seconds)
