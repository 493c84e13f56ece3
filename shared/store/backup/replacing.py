"""What a restore needs of a database, whichever it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shared.store.backup.content import Tell
from shared.value import value


@value
class LastWords:
    """What is done in the restored database before anybody sees it, and the numbers that are asked for then."""

    statements: Sequence[str]
    queries: Sequence[str]


@value
class Replaced:
    """The answers to the queries, and where the old database is kept, if it is."""

    numbers: tuple[int, ...]
    kept: str | None


class Replacement(Protocol):
    """A database that is about to be replaced by a backup, with nobody else in it."""

    def prepare(self, last: LastWords, tell: Tell) -> None:
        """Do what can be done before the old database is touched."""

    def put_in_place(self, tell: Tell) -> Replaced:
        """Replace the old database by the new one. After a crash, one of the two is there, whole."""
