"""Everything that is kept of one person, as JSON lines: for somebody who asks what is known of them.

First their own conversations, as shared/reading/export.py writes them; then one line for each of the others:

    {"type": "shared_message", "session_id", "n", "text", "created_at"}     said in a conversation of several
    {"type": "quote", "session_id", "n", "text"}                            what others quoted of them, with their name
    {"type": "note", "text", "created_at"}                                  what the agent noted of them
    {"type": "schedule", "id", "name", "rule", "text", "created_at"}
    {"type": "usage", "day", "agent", "model", "requests", "total"}
    {"type": "pairing", "user_id", "user_name", "approved_at"}
    {"type": "pause", "scope", "since"}                                     an operator holds a conversation of theirs back
    {"type": "file", "sha256"}                                              a file of theirs
    {"type": "inbound", "id", "state", "received_at", "payload"}            a message in the journal: `pending` ones wait
    {"type": "reply", "id", "destination", "state", "created_at", "payload"}    `pending` and `sending`: not sent yet
    {"type": "dead_letter", "id", "kind", "reason", "detail", "state", "created_at", "payload"}
    {"type": "task", "id", "name", "text", "state", "created_at"}           background work that they asked for
    {"type": "question", "id", "text", "choices", "state", "answer", "created_at"}

Messages and replies of the last days are in their transcript too. A payload is as it was stored: an object, or a text where it is no
JSON.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import orjson

from shared.clock import iso, moment
from shared.errors import NotFound
from shared.person import Person
from shared.reading.export import export_session, json_line
from shared.reading.sessions import session_from
from shared.store import Store
from shared.store.people import PersonRecords, PersonWords
from shared.value import value

_KINDS = (
    ("shared_message", "shared_rows", ("session_id", "n", "text", "created_at")),
    ("quote", "quotes", ("session_id", "n", "text")),
    ("note", "notes", ("text", "created_at")),
    ("schedule", "schedules", ("id", "name", "rule", "text", "created_at")),
    ("usage", "usage", ("day", "agent", "model", "requests", "total")),
    ("pairing", "pairing", ("user_id", "user_name", "approved_at")),
    ("pause", "pauses", ("scope", "since")),
)
_WORDS = (
    ("inbound", "inbounds", ("id", "state", "received_at", "payload")),
    ("reply", "parts", ("id", "destination", "state", "created_at", "payload")),
    ("dead_letter", "letters", ("id", "kind", "reason", "detail", "state", "created_at", "payload")),
    ("task", "tasks", ("id", "name", "text", "state", "created_at")),
    ("question", "asks", ("id", "text", "choices", "state", "answer", "created_at")),
)
_JSON = ("payload", "choices", "answer")


async def export_person(store: Store, person: Person) -> AsyncIterator[bytes]:
    """One line after another, without line breaks; NotFound where nothing is kept of them."""
    lines = 0
    for id in (person.id, *await store.people.other_ids(person)):
        one = Person(person.platform, id)
        found = await store.people.records(one)
        for row in found.sessions:
            async for item in export_session(store, session_from(row)):
                lines += 1
                yield json_line(item)
        for line in (*_others(found), *_lines(_WORDS, await store.people.words(one, found))):
            lines += 1
            yield line
    if not lines:
        raise NotFound(f"nothing is kept of {person.platform}:{person.id}")


@value
class KeptOfPerson:
    """How much is kept of a person, under all ids that they are known by."""

    ids: tuple[str, ...]
    sessions: int  # their own conversations, each with its transcript
    shared_rows: int  # what they said in conversations of several
    quotes: int  # of them, in messages of others
    messages: int  # in the journal
    waiting: int  # of these, not ended yet
    dead_letters: int
    notes: int
    schedules: int
    tasks: int
    questions: int  # to them, in conversations of several
    files: int
    usage: int  # days, agents and models with costs
    pairings: int
    pauses: int
    facts: int  # that name a conversation of theirs, such as a home channel
    audit: int  # actions of operators that name a conversation of theirs

    @property
    def is_nothing(self) -> bool:
        counted = (getattr(self, name) for name in _COUNTED)
        return not any(counted)


# Where each count comes from.
_COUNTED = {
    "sessions": ("sessions",),
    "shared_rows": ("shared_rows",),
    "quotes": ("quotes", "quoting", "quoting_letters"),
    "messages": ("waiting", "ended"),
    "waiting": ("waiting",),
    "dead_letters": ("letters",),
    "notes": ("notes",),
    "schedules": ("schedules",),
    "tasks": ("tasks",),
    "questions": ("asks",),
    "files": ("blobs",),
    "usage": ("usage",),
    "pairings": ("pairing",),
    "pauses": ("pauses",),
    "facts": ("facts",),
    "audit": ("audit",),
}


async def kept_of_person(store: Store, person: Person) -> KeptOfPerson:
    """What `export_person` would write and `forget_person` would remove, counted. Changes nothing. Reads whole tables."""
    ids = (person.id, *await store.people.other_ids(person))
    records = [await store.people.records(Person(person.platform, id)) for id in ids]
    counts = {
        name: sum(len(getattr(found, field)) for found in records for field in fields)
        for name, fields in _COUNTED.items()
    }
    return KeptOfPerson(ids, **counts)


def _others(found: PersonRecords) -> Iterator[bytes]:
    yield from _lines(_KINDS, found)
    for digest in found.blobs:
        yield orjson.dumps({"type": "file", "sha256": digest})


def _lines(kinds: Sequence[tuple[str, str, Sequence[str]]], found: PersonRecords | PersonWords) -> Iterator[bytes]:
    for kind, attribute, names in kinds:
        for row in getattr(found, attribute):
            yield orjson.dumps({"type": kind, **{name: _shown(name, row[name]) for name in names}})


def _shown(name: str, stored: Any) -> object:
    if name.endswith("_at") or name == "since":
        return iso(moment(stored))
    if name in _JSON:
        try:
            return orjson.loads(stored)
        except orjson.JSONDecodeError:
            pass
    return stored
