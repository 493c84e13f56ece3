"""Accept: the producer's side in one process, through the bare door and through the whole receiver but for its socket."""

from __future__ import annotations

from functools import partial

from tests.bench.board import Sample, Variant
from tests.bench.cases.ordered import KEYTURN
from tests.bench.ground import Ground
from tests.bench.keyturn import SECRET, Deployment
from tests.bench.program import measured
from tests.bench.sizes import Sizes


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [
        Variant(f"{door}, {name}", partial(_measure, ground, sizes, door, *how))
        for door in ("accept", "webhook")
        for name, how in KEYTURN.items()
    ]


def _measure(ground: Ground, sizes: Sizes, door: str, database: str, durability: str) -> Sample:
    ground.fresh_redis()
    deployment = Deployment(ground, ground.fresh_database(database), durability, (("WEBHOOK__SECRETS", SECRET),))
    sample = measured("tests.bench.accepting", (door, str(sizes.accepts)), deployment.environment())
    ground.drop_database(deployment.database_url)
    return sample
