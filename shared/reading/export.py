"""Conversations as JSON lines: one line for a session, then one for each row of its transcript, oldest first.

    {"type": "session", "v": 1, "id", "session_key", "current", "title", "parent_id", "message_count", "created_at",
     "updated_at", "ended_at", "end_reason", "facts": {name: value}}
    {"type": "message", "session_id", "n", "role", "text", "data", "active", "inbound_id", "created_at"}

Times are UTC in ISO form; what `data` may say is in `shared/context/marks.py`. `current`: its key talks to it now. Rows
with `active` false left the conversation by /undo or the like. Read page by page, so the size of a database is no matter;
what is said during an export may be in it or not, but a session's line comes before its rows, and rows come in order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson

from shared.clock import iso
from shared.store import Store
from shared.store.database import Row

VERSION = 1
SESSIONS, ROWS = 100, 500  # per page


async def export_all(store: Store) -> AsyncIterator[dict[str, Any]]:
    """Every session, by id."""
    after = ""
    while True:
        rows = await store.sessions.page(after, SESSIONS)
        for row in rows:
            async for line in export_session(store, row):
                yield line
        if len(rows) < SESSIONS:
            return
        after = rows[-1]["id"]


async def export_session(store: Store, row: Row) -> AsyncIterator[dict[str, Any]]:
    """One session, as the store lists it."""
    yield await _session(store, row)
    after = 0
    while True:
        rows = await store.sessions.messages_page(row["id"], after, ROWS)
        for message in rows:
            yield _message(row["id"], message)
        if len(rows) < ROWS:
            return
        after = rows[-1]["n"]


async def _session(store: Store, row: Row) -> dict[str, Any]:
    current, facts = await store.sessions.current_and_facts(row["id"], row["session_key"])
    return {
        "type": "session",
        "v": VERSION,
        "id": row["id"],
        "session_key": row["session_key"],
        "current": current,
        "title": row["title"],
        "parent_id": row["parent_id"],
        "message_count": row["message_count"],
        "created_at": iso(row["created_at"]),
        "updated_at": iso(row["updated_at"]),
        "ended_at": iso(row["ended_at"]) if row["ended_at"] is not None else None,
        "end_reason": row["end_reason"],
        "facts": facts,
    }


def _message(session_id: str, row: Row) -> dict[str, Any]:
    return {
        "type": "message",
        "session_id": session_id,
        "n": row["n"],
        "role": row["role"],
        "text": row["text"],
        "data": orjson.loads(row["data"]),
        "active": bool(row["active"]),
        "inbound_id": row["inbound_id"],
        "created_at": iso(row["created_at"]),
    }
