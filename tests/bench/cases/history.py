"""History: what a turn costs after so many messages, beside writing the whole session at every save.

`Keyturn` is the whole turn in the worker, each a wake of its own, so that each loads its session. `load + commit` is the
part of it that the older way, which is the saving alone, compares with.
"""

from __future__ import annotations

from functools import partial

from tests.bench.board import Sample, Variant
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.load import arrivals
from tests.bench.older_gateways import SessionFile, cost
from tests.bench.past import Pasts
from tests.bench.program import measured
from tests.bench.sizes import Sizes

LONG = 10_000  # from here on, few conversations with many turns each: a hundred times as many rows would be too much
FEW = 5
MANY_TURNS = 5  # per conversation, where there are many: they stay about as long as they were
CHANGES = (("TURNS_PER_LEASE", "1"), ("CONCURRENCY", "4"), ("PARTITIONS", "1"))


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    pasts = Pasts(ground)
    kinds = {
        "Keyturn": partial(_turns, pasts),
        "load + commit": partial(_persisted, pasts),
        "whole file": partial(_saves, ground),
    }
    return [
        Variant(f"{name}, {n:,} messages", partial(measure, n, sizes.turns))
        for n in sizes.histories
        for name, measure in kinds.items()
    ]


def _turns(pasts: Pasts, messages: int, turns: int) -> Sample:
    ground = pasts.ground
    ground.fresh_redis()
    keys = _keys(messages, turns)
    per_key = max(turns // keys, 1)
    deployment = Deployment(ground, pasts.copy(keys, messages), changes=CHANGES)
    deployment.fill(arrivals(keys, per_key))
    drained = deployment.drain(keys * per_key)
    ground.drop_database(deployment.database_url)
    return {"cpu_ms": 1000 * drained.cpu_seconds / drained.messages, "ms": 1000 * drained.seconds / drained.messages}


def _persisted(pasts: Pasts, messages: int, turns: int) -> Sample:
    keys = _keys(messages, turns)
    deployment = Deployment(pasts.ground, pasts.copy(keys, messages))
    sample = measured("tests.bench.persisting", (str(keys), str(turns)), deployment.environment())
    pasts.ground.drop_database(deployment.database_url)
    return sample


def _keys(messages: int, turns: int) -> int:
    return FEW if messages >= LONG else max(FEW, turns // MANY_TURNS)


def _saves(ground: Ground, messages: int, turns: int) -> Sample:
    return cost(SessionFile(ground.fresh_directory("older") / "session.jsonl", messages).message, turns)
