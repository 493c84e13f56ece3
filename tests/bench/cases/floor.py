"""Floor: the same number of Redis calls and SQL commits with nothing around them.

Calls that come together share a round trip here as they do in the pipeline; `trips` says how many there were.
"""

from __future__ import annotations

from functools import partial

from tests.bench.board import Sample, Variant
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.program import measured
from tests.bench.sizes import Sizes

TRIPS = 3  # per message: pop, start, acknowledge


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    kinds = {
        f"{TRIPS} calls": ("sqlite", TRIPS, 0),
        "1 commit, SQLite": ("sqlite", 0, 1),
        "1 commit, PostgreSQL": ("postgres", 0, 1),
        f"{TRIPS} calls, 1 commit, SQLite": ("sqlite", TRIPS, 1),
        f"{TRIPS} calls, 1 commit, PostgreSQL": ("postgres", TRIPS, 1),
    }
    return [Variant(name, partial(_measure, ground, sizes, *how)) for name, how in kinds.items()]


def _measure(ground: Ground, sizes: Sizes, database: str, trips: int, commits: int) -> Sample:
    ground.fresh_redis()
    deployment = Deployment(ground, ground.fresh_database(database))
    arguments = (str(sizes.keys * sizes.per_key), str(trips), str(commits))
    sample = measured("tests.bench.flooring", arguments, deployment.environment())
    ground.drop_database(deployment.database_url)
    return sample
