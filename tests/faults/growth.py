"""What grows while a deployment runs: memory, files, connections, keys, the database. Sampled, and told per message."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.evidence import query
from tests.support.cluster import Cluster

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
WARM_SECONDS = 60.0  # of a process, before its memory counts: it fills its caches first
LONG_ENOUGH = 10  # samples of a life that a slope is drawn through


@dataclass(frozen=True, slots=True)
class Slope:
    """How much more of it there was for each thousand messages, and between what."""

    per_thousand: float
    least: float
    most: float
    samples: int


@dataclass(slots=True)
class Growth:
    """Samples by series: (messages committed so far, value). A series of a process is that of one of its lives; one of
    Redis lasts until it is emptied."""

    cluster: Cluster
    database_url: str
    every_seconds: float
    epoch: Callable[[], int] = lambda: 0  # how often Redis has been emptied or restarted: no line goes through that
    series: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(self.every_seconds)
            with suppress(Exception):  # a server that is away just now has no sample
                await asyncio.to_thread(self._look)

    def slopes(self) -> dict[str, Slope]:
        """By what grows; of processes the life that grew most, of Redis the time between two losses."""
        found: dict[str, Slope] = {}
        for (what, _), samples in self.series.items():
            if len(samples) < LONG_ENOUGH:
                continue
            slope = _slope(samples)
            if what not in found or slope.per_thousand > found[what].per_thousand:
                found[what] = slope
        return dict(sorted(found.items()))

    def _look(self) -> None:
        [row] = query(self.database_url, "SELECT COUNT(*) AS count FROM turns")
        done = float(row["count"])
        for life in [life for life in self.cluster.lives if life.running and not life.paused]:
            if time.monotonic() - life.started_at < WARM_SECONDS:
                continue
            with suppress(OSError):
                role, name = life.member.role, str(life.pid)
                resident = int(Path(f"/proc/{life.pid}/statm").read_text().split()[1]) * PAGE_BYTES
                self.series[f"memory of a process, {role}, MB", name].append((done, resident / 1e6))
                files = len(os.listdir(f"/proc/{life.pid}/fd"))
                self.series[f"open files of a process, {role}", name].append((done, files))
        told: Any = self.cluster.redis.info()
        self.series["connections to Redis", ""].append((done, told["connected_clients"]))
        epoch = str(self.epoch())
        self.series["memory of Redis, MB", epoch].append((done, told["used_memory"] / 1e6))
        self.series["keys in Redis", epoch].append((done, float(self.cluster.redis.dbsize())))
        if not self.database_url.startswith("sqlite:"):
            [row] = query(self.database_url, "SELECT COUNT(*) AS count FROM pg_stat_activity WHERE datname IS NOT NULL")
            self.series["connections to PostgreSQL", ""].append((done, row["count"]))
        self.series["size of the database, MB", ""].append((done, _size(self.database_url) / 1e6))


def _size(database_url: str) -> float:
    if database_url.startswith("sqlite:"):
        return float(Path(database_url.removeprefix("sqlite:///")).stat().st_size)
    [row] = query(database_url, "SELECT pg_database_size(current_database()) AS size")
    return float(row["size"])


def _slope(samples: Sequence[tuple[float, float]]) -> Slope:
    """The straight line of least squares."""
    n = len(samples)
    mean_x, mean_y = sum(x for x, _ in samples) / n, sum(y for _, y in samples) / n
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    rise = sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0
    values = [y for _, y in samples]
    return Slope(1000 * rise, min(values), max(values), n)
