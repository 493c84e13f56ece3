"""Who says what when: the order in which messages of many keys arrive. Standard library only, for the peers' sake."""

from __future__ import annotations

import random
from collections.abc import Iterator

SEED = 20


def arrivals(keys: int, per_key: int) -> Iterator[tuple[int, int]]:
    """(key, n) in an order as chats have it: keys mixed at random, each key's own messages in sequence."""
    order = [key for key in range(keys) for _ in range(per_key)]
    random.Random(SEED).shuffle(order)
    said = [0] * keys
    for key in order:
        yield key, said[key]
        said[key] += 1
