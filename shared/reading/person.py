"""Everything that is kept of one person, as JSON lines: for somebody who asks what is known of them.

First their own conversations, as shared/reading/export.py writes them; then one line for each of the others:

    {"type": "shared_message", "session_id", "n", "text", "created_at"}     said in a conversation of several
    {"type": "note", "text", "created_at"}                                  what the agent noted of them
    {"type": "schedule", "id", "name", "rule", "text", "created_at"}
    {"type": "usage", "day", "agent", "model", "requests", "total"}
    {"type": "pairing", "user_id", "user_name", "approved_at"}
    {"type": "file", "sha256"}                                              a file of theirs
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import orjson

from shared.clock import iso, moment
from shared.errors import NotFound
from shared.person import Person
from shared.reading.export import export_session, json_line
from shared.reading.sessions import session_from
from shared.store import Store
from shared.store.database import Row
from shared.store.people import PersonRecords

_KINDS = (
    ("shared_message", "shared_rows", ("session_id", "n", "text", "created_at")),
    ("note", "notes", ("text", "created_at")),
    ("schedule", "schedules", ("id", "name", "rule", "text", "created_at")),
    ("usage", "usage", ("day", "agent", "model", "requests", "total")),
    ("pairing", "pairing", ("user_id", "user_name", "approved_at")),
)


async def export_person(store: Store, person: Person) -> AsyncIterator[bytes]:
    """One line after another, without line breaks; NotFound where nothing is kept of them."""
    lines = 0
    for id in (person.id, *await store.people.other_ids(person)):
        found = await store.people.records(Person(person.platform, id))
        for row in found.sessions:
            async for item in export_session(store, session_from(row)):
                lines += 1
                yield json_line(item)
        for line in _others(found):
            lines += 1
            yield line
    if not lines:
        raise NotFound(f"nothing is kept of {person.platform}:{person.id}")


def _others(found: PersonRecords) -> Iterator[bytes]:
    for kind, attribute, names in _KINDS:
        for row in getattr(found, attribute):
            yield orjson.dumps({"type": kind, **{name: _shown(name, row) for name in names}})
    for digest in found.blobs:
        yield orjson.dumps({"type": "file", "sha256": digest})


def _shown(name: str, row: Row) -> object:
    return iso(moment(row[name])) if name.endswith("_at") else row[name]
