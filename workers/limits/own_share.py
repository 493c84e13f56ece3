"""Limits while Redis is away: each process keeps to a share of them by itself."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from math import inf

from workers.agents.model.admission import Permit
from workers.limits.verdict import AdmissionVerdict, Obstacle

BURST_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.2
PATIENCE_SECONDS = 2.0


@dataclass(slots=True)
class Bucket:
    """What is left of a rate: at first as much as it holds. It may fall below zero, as in admit.lua."""

    per_second: float
    at: float
    level: float = inf

    def wait(self, cost: float) -> float:
        """How many seconds until this much may be taken."""
        most, now = max(1.0, self.per_second * BURST_SECONDS), time.monotonic()
        self.level, self.at = min(most, self.level + (now - self.at) * self.per_second), now
        return max(0.0, (min(cost, most) - self.level) / self.per_second)


class LocalLimits:
    """Counts for this process alone. Forgets nothing when Redis comes back: what was taken here is given back here."""

    def __init__(self) -> None:
        self._open: defaultdict[str, set[str]] = defaultdict(set)
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def ask(self, permit: Permit) -> AdmissionVerdict:
        """The same as admit.lua, with a share of each limit."""
        account, limits = permit.account, permit.account.limits
        share = limits.share_without_redis
        if limits.concurrency and len(self._open[account.id]) >= max(1, int(limits.concurrency * share)):
            return AdmissionVerdict(Obstacle.FULL, LOOK_AGAIN_SECONDS)
        taken = [
            (self._bucket(account.id, name, per_minute * share / 60), cost)
            for name, per_minute, cost in (
                ("requests", limits.requests_per_minute, 1.0),
                ("tokens", limits.tokens_per_minute, float(permit.tokens)),
            )
            if per_minute
        ]
        wait = max((bucket.wait(cost) for bucket, cost in taken), default=0.0)
        if wait > PATIENCE_SECONDS:
            return AdmissionVerdict(Obstacle.RATE, wait)
        for bucket, cost in taken:
            bucket.level -= cost
        self._open[account.id].add(permit.id)
        return AdmissionVerdict(None, wait)

    def leave(self, permit: Permit) -> bool:
        """Forget a permit. False: it was not given here."""
        if permit.id not in self._open[permit.account.id]:
            return False
        self._open[permit.account.id].remove(permit.id)
        return True

    def _bucket(self, account: str, name: str, per_second: float) -> Bucket:
        return self._buckets.setdefault((account, name), Bucket(per_second, time.monotonic()))
