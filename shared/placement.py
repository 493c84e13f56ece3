"""Which Redis server a partition lives on, and on which servers it may still have something while those are drained.

Rendezvous hashing ranks the servers for each partition. The first in that order that takes keys is the partition's home. So
draining a server gives its partitions to exactly those servers that would have them if it were not listed at all: taking an
empty server out of the list afterwards moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

S = TypeVar("S")


class Placement(Generic[S]):
    """The homes of all partitions. Where every server is to be drained, none is: somebody must take the keys."""

    def __init__(
        self, servers: Sequence[S], partitions: int, weight: Callable[[S, int], bytes], draining: Collection[S] = ()
    ) -> None:
        taking = [server for server in servers if server not in draining]
        self.draining = frozenset(draining) if taking else frozenset[S]()
        self.homes: list[S] = []
        self.left: list[tuple[S, ...]] = []  # by partition: the servers that it has left, and that may hold keys of it
        for partition in range(partitions):
            ranked = sorted(servers, key=lambda server: weight(server, partition), reverse=True)
            first = next(rank for rank, server in enumerate(ranked) if server not in self.draining)
            self.homes.append(ranked[first])
            self.left.append(tuple(ranked[:first]))

    def served_by(self, server: S) -> list[int]:
        """The partitions whose wakes may be on a server: it is their home, or they have left it."""
        return [p for p, home in enumerate(self.homes) if home is server or server in self.left[p]]
