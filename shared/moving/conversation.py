"""What an older gateway kept, in our words. Ids follow from the source, so that a second run finds what the first one wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from hashlib import blake2b
from typing import Protocol

from shared.codec import encode_text
from shared.messages import Entry, Source
from shared.session_key import SessionKey
from shared.value import value

SIGNATURE = "import_"  # how the turn ids of imports begin: a session that carries one has not moved on since


@value
class Row:
    """A row of a transcript, with the time it was written at."""

    entry: Entry
    at: int  # wall clock, ms
    active: bool = True


@value
class Conversation:
    gateway: str
    ref: str  # its id there
    key: SessionKey
    source: Source  # where it was held, and with whom as far as that is known
    rows: tuple[Row, ...]
    created_at: int
    updated_at: int
    is_current: bool = True  # the one that its key talks to
    title: str | None = None
    parent: str | None = None  # the ref of the one before it
    ended_at: int | None = None
    end_reason: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    corrupt: int = 0  # lines of it that could not be read
    note: str | None = None  # what whoever moves in should know about it

    @property
    def session_id(self) -> str:
        return session_id(self.gateway, self.ref)

    def turn_id(self, rows: int) -> str:
        """What the import of so many of the rows is signed with: by what was said, whether or not it is still shown."""
        digest = blake2b(self.session_id.encode(), digest_size=15)
        for row in self.rows[:rows]:
            digest.update(encode_text([row.entry.role, row.entry.text, row.entry.data]).encode())
        return f"{SIGNATURE}{digest.hexdigest()}"


@value
class Skipped:
    """What was not brought along, and why."""

    ref: str
    reason: str
    corrupt: int = 0


class Reader(Protocol):
    total: int  # how much it will give

    def __iter__(self) -> Iterator[Conversation | Skipped]: ...


def session_id(gateway: str, ref: str) -> str:
    return f"ses_{blake2b(encode_text([gateway, ref]).encode(), digest_size=16).hexdigest()}"


def once_current(found: Iterable[Conversation | Skipped]) -> Iterator[Conversation | Skipped]:
    """A key talks to one conversation: the first that comes. Another one of the same key is kept beside it."""
    taken: set[SessionKey] = set()
    for one in found:
        if isinstance(one, Conversation) and one.is_current:
            if one.key in taken:
                one = replace(one, is_current=False, note="another conversation of the same key is newer")
            taken.add(one.key)
        yield one
