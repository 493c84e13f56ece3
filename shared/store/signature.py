"""Signatures: which grams some rows may have, in about eleven bits each. PostgreSQL's search looks through them.

A signature is a Bloom filter. Every gram sets four bits, at places that follow from the gram. Rows that have a gram have its
bits; rows that have its bits may have other grams: about one signature in a hundred, for a question with a single gram.
So signatures only choose candidates, as grams do.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import lru_cache
from hashlib import blake2b
from math import log
from struct import Struct

from shared.value import value

SIZES = (480, 960, 1920, 3840, 7680, 15_360, 30_720)  # bits: 4 rows of the second largest fill a page of PostgreSQL
USUAL = 15_360  # bits that the grams of several rows may take together; one long row may take more
FULL = 0.3  # of the bits
_ROOM = -log(1 - FULL) / 4  # grams per bit that set so many, as four bits of each may be set already
_FOUR_NUMBERS = Struct("<4I").unpack


@value
class Signature:
    """Some grams as bits: bit `place % size` of `bits` is set for each of their places."""

    size: int
    bits: int

    @classmethod
    def of(cls, grams: Set[str]) -> Signature:
        """The smallest signature that is not too full, or the largest."""
        size = size_for(len(grams))
        return cls(size, _bits(set[int]().union(*map(_places, grams)), size))

    @property
    def is_roomy(self) -> bool:
        """Whether so few bits are set that it rarely has those of other grams."""
        return self.bits.bit_count() <= FULL * self.size

    def plus(self, grams: Iterable[str]) -> Signature | None:
        """With further grams; None: it would be too full."""
        more = Signature(self.size, self.bits | _bits(set[int]().union(*map(_places, grams)), self.size))
        return more if more.is_roomy else None

    def __str__(self) -> str:
        """As PostgreSQL reads bits: `x00ff…`."""
        return f"x{self.bits:0{self.size // 4}x}"


def size_for(grams: int) -> int:
    """Of the smallest signature in which so many grams leave enough bits unset."""
    return next((size for size in SIZES if grams <= size * _ROOM), SIZES[-1])


def masks(grams: Iterable[str]) -> list[Signature]:
    """The bits that all of the grams set, in each of SIZES."""
    places = set[int]().union(*map(_places, grams))
    return [Signature(size, _bits(places, size)) for size in SIZES]


def _bits(places: Iterable[int], size: int) -> int:
    flags = bytearray(size // 8)
    for place in places:
        place %= size
        flags[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(flags, "little")


@lru_cache(maxsize=65_536)
def _places(gram: str) -> tuple[int, ...]:
    return _FOUR_NUMBERS(blake2b(gram.encode(), digest_size=16).digest())
