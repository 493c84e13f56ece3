"""Turns of 20 ms, as of a very fast model, with the defaults of both: Keyturn against GroupMQ."""

from __future__ import annotations

from functools import partial

from tests.bench.board import Sample, Variant
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.load import arrivals
from tests.bench.peers.roster import GroupMQ
from tests.bench.sizes import Sizes

SECONDS = 0.02


def variants(ground: Ground, sizes: Sizes, peers: bool) -> list[Variant]:
    found = [Variant("Keyturn redis", partial(_keyturn, ground, sizes))]
    if peers:
        peer = GroupMQ(turn_seconds=SECONDS)
        run = partial(peer.measure, ground, sizes.slow_keys, sizes.slow_per_key, sizes.peer_seconds)
        found.append(Variant(peer.name, run))
    return found


def _keyturn(ground: Ground, sizes: Sizes) -> Sample:
    ground.fresh_redis()
    deployment = Deployment(ground, ground.fresh_database("sqlite"), "redis")
    deployment.fill(arrivals(sizes.slow_keys, sizes.slow_per_key))
    sample = deployment.drain(sizes.slow_keys * sizes.slow_per_key, seconds=SECONDS).sample()
    ground.drop_database(deployment.database_url)
    return sample
