"""Sessions: what a turn costs among so many sessions, beside writing an index of all of them for every message."""

from __future__ import annotations

from functools import partial

from tests.bench.board import Sample, Variant
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.older_gateways import SessionIndex, cost
from tests.bench.past import Pasts
from tests.bench.sizes import Sizes

MESSAGES = 2  # in each session
KEYS = 100  # that speak during the measurement, spread over all
LONGER = 5  # times as many turns as elsewhere: they are cheap here, and CPU time is counted in hundredths of a second
INDEX_LIMIT = 10_000  # beyond this the older way takes seconds and gigabytes per message


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    pasts = Pasts(ground)
    ours = [
        Variant(f"Keyturn, {n:,} sessions", partial(_turns, pasts, n, LONGER * sizes.turns)) for n in sizes.sessions
    ]
    theirs = [
        Variant(f"whole index, {n:,} sessions", partial(_index, ground, n, sizes.turns))
        for n in sizes.sessions
        if n <= INDEX_LIMIT
    ]
    return ours + theirs


def _turns(pasts: Pasts, sessions: int, turns: int) -> Sample:
    ground = pasts.ground
    ground.fresh_redis()
    deployment = Deployment(ground, pasts.copy(sessions, MESSAGES))
    keys = min(sessions, KEYS, turns)
    stride = sessions // keys
    deployment.fill((key * stride, n) for n in range(turns // keys) for key in range(keys))
    drained = deployment.drain(turns // keys * keys)
    ground.drop_database(deployment.database_url)
    return {"cpu_ms": 1000 * drained.cpu_seconds / drained.messages, "ms": 1000 * drained.seconds / drained.messages}


def _index(ground: Ground, sessions: int, turns: int) -> Sample:
    return cost(SessionIndex(ground.fresh_directory("older") / "sessions.json", sessions).message, turns)
