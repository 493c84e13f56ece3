"""Plain answer: what one message costs Redis and the database with a model's answer without tools, beside an echo's."""

from __future__ import annotations

from functools import partial

from tests.bench.board import Sample, Variant
from tests.bench.cases.streaming import settings_for
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.program import measured
from tests.bench.provider import open_provider
from tests.bench.sizes import Sizes

MOST = 50
DELTAS, SECONDS = 5, 0.01
ECHO, MODEL = "echo", "model"


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [Variant(name, partial(_measure, ground, min(sizes.accepts, MOST), name)) for name in (ECHO, MODEL)]


def _measure(ground: Ground, messages: int, name: str) -> Sample:
    ground.fresh_redis()
    with open_provider(ground.fresh_directory("plain"), DELTAS, SECONDS) as (url, _):
        changes = settings_for(url) if name == MODEL else (("AGENT", "echo"), ("TITLES", "false"))
        deployment = Deployment(ground, ground.fresh_database("sqlite"), changes=changes)
        sample = measured("tests.bench.counting", (str(messages),), deployment.environment())
    ground.drop_database(deployment.database_url)
    return sample
