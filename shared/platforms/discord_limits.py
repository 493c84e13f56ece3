"""Discord's rate limits: a request that would be refused is not made. Too many refused ones get an address banned."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

from shared.errors import RateLimited
from shared.value import value

REMEMBERED = 10_000  # routes; beyond them, those whose wait is over are forgotten
_MAJOR = re.compile(r"/(channels|guilds)/([0-9]+)")
_TOKENS = re.compile(r"(/(?:webhooks|interactions)/[0-9]+/)[^/]+")
_IDS = re.compile(r"/[0-9]+")


def _shown(path: str) -> str:
    return _TOKENS.sub(r"\1…", path)


@value
class Route:
    """A method and a path. The token of an interaction is part of its path, and its permission."""

    method: str
    path: str

    @property
    def name(self) -> str:
        """The route without the token that its path may hold: fit to be logged."""
        return f"{self.method} {_shown(self.path)}"

    @property
    def is_interaction(self) -> bool:
        return self.path.startswith(("/webhooks/", "/interactions/"))

    @property
    def kind(self) -> str:
        """What Discord counts as one route: without ids."""
        return f"{self.method} {_IDS.sub('/:id', _shown(self.path))}"

    @property
    def major(self) -> str:
        """The channel, guild or interaction that has a count of its own."""
        found = _MAJOR.match(self.path)
        return found[0] if found else self.path if self.is_interaction else ""


class DiscordLimits:
    """What Discord's answers said about when to ask again. Kept in memory: each process learns it for itself."""

    def __init__(self) -> None:
        self._buckets: dict[str, str] = {}  # by kind of route: several kinds may share a bucket
        self._free_at: dict[tuple[str, str], float] = {}  # by bucket and major id, on the monotonic clock
        self._all_free_at = 0.0

    def check(self, route: Route) -> None:
        """RateLimited when the route is known to be exhausted. Interactions are not under the global limit."""
        free_at = self._free_at.get(self._key(route), 0.0)
        if not route.is_interaction:
            free_at = max(free_at, self._all_free_at)
        wait = free_at - time.monotonic()
        if wait > 0:
            raise RateLimited(timedelta(seconds=wait))

    def note(self, route: Route, headers: Mapping[str, str]) -> None:
        """Remember what an answer says of its route. Headers that are none of Discord's are no matter."""
        if bucket := headers.get("x-ratelimit-bucket"):
            self._buckets[route.kind] = bucket[:100]
        if headers.get("x-ratelimit-remaining") == "0":
            with suppress(ValueError, OverflowError):
                self._wait(route, timedelta(seconds=float(headers.get("x-ratelimit-reset-after", ""))))

    def refused_everywhere(self, wait: timedelta) -> None:
        """Discord said 429 to all of us. A 429 for one route needs no note: its caller was told how long to wait."""
        self._all_free_at = time.monotonic() + wait.total_seconds()

    def _wait(self, route: Route, wait: timedelta) -> None:
        now = time.monotonic()
        if len(self._free_at) >= REMEMBERED:
            self._free_at = {key: at for key, at in self._free_at.items() if at > now}
        self._free_at[self._key(route)] = now + min(wait, timedelta(days=1)).total_seconds()

    def _key(self, route: Route) -> tuple[str, str]:
        return self._buckets.get(route.kind, route.kind), route.major
