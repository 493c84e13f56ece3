"""How many requests that last are open in this receiver: each holds a connection to Redis, and its caller's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from shared.errors import TooMany

RETRY_AFTER = timedelta(seconds=5)


class OpenRequests:
    """Counts those of each key by their kind, and all of them."""

    def __init__(self, in_all: int) -> None:
        self._in_all = in_all
        self._open: Counter[tuple[str, str]] = Counter()

    def enter(self, kind: str, sender: str, most: int) -> Callable[[], None]:
        """Count one more, and give what is to be called when it is no more; calling that twice changes nothing. TooMany where
        the key has `most` of this kind already, or all keys together have too many."""
        whose = kind, sender
        if self._open[whose] >= most:
            raise TooMany(f"open {kind}", RETRY_AFTER)
        if self._open.total() >= self._in_all:
            raise TooMany("open requests in all", RETRY_AFTER)
        self._open[whose] += 1
        left = False

        def leave() -> None:
            nonlocal left
            if left:
                return
            left = True
            self._open[whose] -= 1
            if not self._open[whose]:
                del self._open[whose]

        return leave
