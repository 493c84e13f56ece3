"""Scale: the same load drained by more worker processes.

Redis, the database and the workers share this machine's cores, so the wall clock cannot show more than the cores give.
`scaled` is what it would be with a core per worker: processes times the CPU time per message of one, over that of many.
"""

from __future__ import annotations

from functools import partial

from tests.bench.board import Sample, Variant
from tests.bench.cases.ordered import KEYTURN
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.load import arrivals
from tests.bench.sizes import Sizes


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [
        Variant(f"{name} × {count}", partial(_measure, ground, sizes, count, *KEYTURN[name]))
        for name in ("redis", "journal PostgreSQL")
        for count in sizes.processes
    ]


def _measure(ground: Ground, sizes: Sizes, processes: int, database: str, durability: str) -> Sample:
    ground.fresh_redis()
    deployment = Deployment(ground, ground.fresh_database(database), durability)
    deployment.fill(arrivals(sizes.keys, sizes.per_key))
    sample = deployment.drain(sizes.keys * sizes.per_key, processes=processes).sample()
    ground.drop_database(deployment.database_url)
    return {name: sample[name] for name in ("rate", "cpu_ms", "violations")}
