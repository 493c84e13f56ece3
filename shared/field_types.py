"""Which types the fields of a decoded record may have.

Looking at twenty fields of each message one by one took 3 µs. So a record's types are compared as one tuple: `("a", None)` has
the types `(str, NoneType)`; once they were found right they are known, and the next record with the same types is right too.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from shared.errors import Malformed

TEXT = (str,)
MAYBE_TEXT = (str, type(None))


class FieldTypes:
    """The allowed types by field, for at least two fields. Subclasses do not count: True is no int."""

    __slots__ = ("_allowed", "_right", "_values")

    def __init__(self, allowed: Iterable[tuple[str, tuple[type, ...]]]) -> None:
        self._allowed = dict(allowed)
        self._values = attrgetter(*self._allowed)
        self._right: set[tuple[type, ...]] = set()  # grows to the number of allowed combinations at most

    def check(self, value: object, what: str) -> None:
        """Malformed where a field of the value, which is a record called `what`, has none of its types."""
        types = tuple(map(type, self._values(value)))
        if types in self._right:
            return
        for found, (name, allowed) in zip(types, self._allowed.items(), strict=True):
            if found not in allowed:
                raise Malformed(f"{what}.{name} is of the wrong kind")
        self._right.add(types)


def of_type(types: tuple[type, ...], *names: str) -> list[tuple[str, tuple[type, ...]]]:
    """Fields that all have one of these types, for `FieldTypes`."""
    return [(name, types) for name in names]
