"""Receivers: how many requests each platform's receiver takes, beside an empty Starlette route in the same process.

Checked and normalised as ever; the door behind it accepts nothing. The same requests go to both in turn.
"""

from __future__ import annotations

from functools import partial

from shared.platforms import PLATFORMS
from tests.bench.board import Sample, Variant
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.program import measured
from tests.bench.sizes import Sizes

RECEIVERS = [name for name, facts in PLATFORMS.items() if facts.receives]


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [Variant(name, partial(_measure, ground, sizes, name)) for name in RECEIVERS]


def _measure(ground: Ground, sizes: Sizes, platform: str) -> Sample:
    ground.fresh_redis()
    deployment = Deployment(ground, ground.fresh_database("sqlite"))
    sample = measured("tests.bench.receiving", (platform, str(sizes.received)), deployment.environment())
    ground.drop_database(deployment.database_url)
    return sample
