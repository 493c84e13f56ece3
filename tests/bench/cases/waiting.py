"""Waiting: turns that sleep a second, as if a model were thinking, all at once in one process."""

from __future__ import annotations

from functools import partial

from tests.bench.board import Sample, Variant
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.load import arrivals
from tests.bench.sizes import Sizes


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [Variant(f"{count:,} turns", partial(_measure, ground, count)) for count in sizes.waiting]


def _measure(ground: Ground, count: int) -> Sample:
    ground.fresh_redis()
    deployment = Deployment(ground, ground.fresh_database("sqlite"))
    deployment.fill(arrivals(count, 1))
    drained = deployment.drain(count, seconds=1, options=("--concurrency", str(count)))
    ground.drop_database(deployment.database_url)
    return {"seconds": drained.seconds, "peak_mb": drained.peak_mb, "cpu_ms": 1000 * drained.cpu_seconds / count}
