"""What an older gateway kept, in our words. Ids follow from the source, so that a second run finds what the first one wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from decimal import Decimal
from hashlib import blake2b
from typing import Protocol

from keyturn.importing.old_keys import OldPlace
from shared.codec import encode_text
from shared.messages import Entry, Source
from shared.session_key import SessionKey
from shared.value import value

SIGNATURE = "import_"  # how the turn ids of imports begin: a session that carries one has not moved on since


@value
class TimedRow:
    """A row of a transcript, with the time it was written at."""

    entry: Entry
    at: int  # wall clock, ms
    active: bool = True


@value
class Used:
    """What a model was asked and cost, on the day that it was first asked: the older gateways keep sums, not days."""

    model: str
    day: str  # 2026-11-16
    requests: int = 0
    input: int = 0  # what came from a cache or went into one is part of it
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: Decimal | None = None  # None: not known
    last_prompt: int | None = None


@value
class OldConversation:
    """A conversation of an older gateway, ready to move in. Reading it twice gives the same ids."""

    gateway: str
    ref: str  # its id there
    place: OldPlace
    rows: tuple[TimedRow, ...]
    created_at: int
    updated_at: int
    is_current: bool = True  # the one that its key talks to
    title: str | None = None
    parent: str | None = None  # the ref of the one before it
    ended_at: int | None = None
    end_reason: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    used: tuple[Used, ...] = ()
    is_flushed: bool = False  # it was looked at for what is worth keeping
    corrupt: int = 0  # lines of it that could not be read
    note: str | None = None  # what whoever moves in should know about it, beside what its place says

    @property
    def key(self) -> SessionKey:
        return self.place.key

    @property
    def source(self) -> Source:
        """Where it was held, and with whom as far as that is known."""
        return self.place.source

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


class GatewayReader(Protocol):
    """Reads an older gateway and changes nothing there."""

    gateway: str
    total: int  # how many conversations it will give

    def __iter__(self) -> Iterator[OldConversation | Skipped]: ...

    def used(self) -> Sequence[Used]:
        """What was spent there that no conversation is known for."""

    def memory(self) -> Sequence[str]:
        """The notes in the gateway's memory files. Every conversation was shown them there."""


def session_id(gateway: str, ref: str) -> str:
    return f"ses_{blake2b(encode_text([gateway, ref]).encode(), digest_size=16).hexdigest()}"


def once_current(found: Iterable[OldConversation | Skipped]) -> Iterator[OldConversation | Skipped]:
    """A key talks to one conversation: the first that comes. Another one of the same key is kept beside it."""
    taken: set[SessionKey] = set()
    for one in found:
        if isinstance(one, OldConversation) and one.is_current:
            if one.key in taken:
                one = replace(one, is_current=False, note="another conversation of the same key is newer")
            taken.add(one.key)
        yield one
