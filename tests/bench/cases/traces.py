"""Traces: what they cost a worker per message, off and with 5 % of the messages sampled.

The spans are sent to a process that takes everything.
"""

from __future__ import annotations

from tests.bench.board import Sample, Variant
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.program import measured
from tests.bench.provider import open_provider
from tests.bench.sizes import Sizes

CHANGES = (("TRACE__ENABLED", "true"), ("TRACE__SAMPLE", "0.05"), ("TITLES", "false"))
NAME = "journal SQLite"


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [Variant(NAME, lambda: _measure(ground, sizes))]


def _measure(ground: Ground, sizes: Sizes) -> Sample:
    ground.fresh_redis()
    with open_provider(ground.fresh_directory("traces"), 1, 0) as (url, _):
        deployment = Deployment(ground, ground.fresh_database("sqlite"), changes=CHANGES)
        env = deployment.environment(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{url}/traces")
        sample = measured("tests.bench.traced", tuple(map(str, sizes.traced)), env)
    ground.drop_database(deployment.database_url)
    return sample
