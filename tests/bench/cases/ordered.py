"""Ordered: many keys, each key's messages one after another, empty turns, one worker process.

Keyturn orders, locks and persists the transcript; where it answers, it decides a reply and wakes delivery, too. The recipes
order and lock as far as they go. The others do neither: they show how fast jobs can be taken off Redis at all.
"""

from __future__ import annotations

from functools import partial

from tests.bench.board import Sample, Variant
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.load import arrivals
from tests.bench.peers import roster
from tests.bench.sizes import Sizes

KEYTURN = {
    "redis": ("sqlite", "redis"),
    "journal SQLite": ("sqlite", "journal"),
    "journal PostgreSQL": ("postgres", "journal"),
}
ANSWERING = "Keyturn redis, answering"


def variants(ground: Ground, sizes: Sizes, peers: bool) -> list[Variant]:
    found = [Variant(f"Keyturn {name}", partial(_keyturn, ground, sizes, *how)) for name, how in KEYTURN.items()]
    found.append(Variant(ANSWERING, partial(_keyturn, ground, sizes, *KEYTURN["redis"], silent=False)))
    if peers:
        for peer in (*roster.ORDERED, *roster.UNORDERED):
            note = "" if peer in roster.ORDERED else "no order"
            run = partial(peer.measure, ground, sizes.keys, sizes.per_key, sizes.peer_seconds)
            found.append(Variant(peer.name, run, note))
    return found


def _keyturn(ground: Ground, sizes: Sizes, database: str, durability: str, *, silent: bool = True) -> Sample:
    ground.fresh_redis()
    deployment = Deployment(ground, ground.fresh_database(database), durability)
    deployment.fill(arrivals(sizes.keys, sizes.per_key))
    sample = deployment.drain(sizes.keys * sizes.per_key, silent=silent).sample()
    ground.drop_database(deployment.database_url)
    return sample
