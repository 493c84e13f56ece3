"""Conversations as JSON lines: one line for a session, then one for each row of its transcript, oldest first.

    {"type": "session", "v": 1, "id", "session_key", "current", "title", "parent_id", "message_count", "created_at",
     "updated_at", "ended_at", "end_reason", "facts": {name: value}}
    {"type": "message", "session_id", "n", "role", "text", "data", "active", "inbound_id", "created_at"}

Times are UTC in ISO form; the names in `data` are explained in `shared/context/marks.py`. `current`: its key talks to it
now. Rows with `active` false left the conversation by /undo or the like. An export reads page by page, so it costs little
memory however large the database is. What is said during an export may be in it or not, but a session's line comes before
its rows, and rows come in order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

import orjson

from shared.clock import iso, moment
from shared.reading.sessions import StoredSession, session_from
from shared.store import Store
from shared.store.database import Row
from shared.synthetic import is_synthetic
from shared.value import value

VERSION = 1
SESSIONS, ROWS = 100, 500  # per page


@value
class ExportedSession:
    """A session, whether its key talks to it now, and its facts."""

    session: StoredSession
    current: bool
    facts: Mapping[str, str]


@value
class ExportedRow:
    """A row of the transcript of the session before it."""

    session_id: str
    n: int
    role: str
    text: str
    data: Mapping[str, Any]
    active: bool
    inbound_id: str | None
    created_at: datetime


Exported = ExportedSession | ExportedRow


async def export_all(store: Store) -> AsyncIterator[Exported]:
    """Every session, by id."""
    after = ""
    while True:
        rows = await store.sessions.page(after, SESSIONS)
        for row in rows:
            if not is_synthetic(row["session_key"]):
                async for item in export_session(store, session_from(row)):
                    yield item
        if len(rows) < SESSIONS:
            return
        after = rows[-1]["id"]


async def export_session(store: Store, session: StoredSession) -> AsyncIterator[Exported]:
    """One session, then its rows."""
    yield ExportedSession(session, *await store.sessions.current_and_facts(session.id, session.session_key))
    after = 0
    while True:
        rows = await store.sessions.messages_page(session.id, after, ROWS)
        for row in rows:
            yield _row(session.id, row)
        if len(rows) < ROWS:
            return
        after = rows[-1]["n"]


def json_line(item: Exported) -> bytes:
    """The line of a session or a row, in the form above, without its line break."""
    if isinstance(item, ExportedRow):
        row = {"type": "message", **{name: getattr(item, name) for name in _ROW}, "created_at": iso(item.created_at)}
        return orjson.dumps(row)
    session = item.session
    line = {
        "type": "session",
        "v": VERSION,
        "id": session.id,
        "session_key": session.session_key,
        "current": item.current,
        "title": session.title,
        "parent_id": session.parent_id,
        "message_count": session.message_count,
        "created_at": iso(session.created_at),
        "updated_at": iso(session.updated_at),
        "ended_at": iso(session.ended_at) if session.ended_at is not None else None,
        "end_reason": session.end_reason,
        "facts": item.facts,
    }
    return orjson.dumps(line)


_ROW = ("session_id", "n", "role", "text", "data", "active", "inbound_id")


def _row(session_id: str, row: Row) -> ExportedRow:
    about = (row["n"], row["role"], row["text"], orjson.loads(row["data"]), bool(row["active"]), row["inbound_id"])
    return ExportedRow(session_id, *about, moment(row["created_at"]))
