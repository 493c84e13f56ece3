"""Memory: notes that outlive a conversation, and which conversations were looked at for them.

Notes are added and deleted, never changed. A session that ends is queued by the commit that ends it; one that is over by
policy, by the watcher. A try is counted before it begins. Its notes and the mark that it was made are one transaction,
which fails if the session has moved on or another try began: so each row is looked at once, whoever crashes when.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from shared.clock import now_ms
from shared.codec import storable
from shared.messages import Entry
from shared.store.database import Database, step
from shared.value import value

TRIES = 3


@value
class Note:
    id: int
    text: str
    created_at: int


@value
class Quiet:
    """A session that nobody spoke in for some time."""

    id: str
    session_key: str
    updated_at: int


@value
class Due:
    """A session whose time to be looked at has come."""

    session_id: str
    session_key: str
    due_at: int


@value
class Standing:
    """A session that is to be looked at, as it was read."""

    upto: int
    tries: int
    version: int
    message_count: int
    updated_at: int
    ended_at: int | None
    due_at: int


class Memory:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, owner: str, limit: int) -> list[Note]:
        """The newest notes of an owner, oldest first."""
        [rows] = await self._database.read(step("notes_of", owner=owner, limit=limit))
        return [Note(**row) for row in reversed(rows)]

    # -- which sessions to look at

    async def quiet(self, after: tuple[int, str], before_ms: int, limit: int) -> list[Quiet]:
        """Sessions last active from `after` (time and id) on and before a time, that have rows nobody looked at."""
        query = step("flush_candidates", after=after[0], after_id=after[1], before=before_ms, limit=limit)
        [rows] = await self._database.read(query)
        return [Quiet(**row) for row in rows]

    async def queue(self, sessions: Sequence[Quiet]) -> None:
        now = now_ms()
        await self._database.write(
            *(step("flush_queue", session_id=s.id, session_key=s.session_key, now=now) for s in sessions)
        )

    async def due(self, before_ms: int, limit: int) -> list[Due]:
        [rows] = await self._database.read(step("flush_due", before=before_ms, limit=limit))
        return [Due(**row) for row in rows]

    async def put_off(self, due: Due, later_ms: int) -> bool:
        """Look at it later. False: another did the same just now."""
        values = {"session_id": due.session_id, "due_at": due.due_at, "later": later_ms}
        [rows] = await self._database.write(step("flush_put_off", **values))
        return bool(rows)

    # -- looking at one

    async def standing(self, session_id: str) -> Standing | None:
        """How a session stands that is to be looked at; None when it is not, or no longer."""
        [rows] = await self._database.read(step("flush_of", session_id=session_id))
        return Standing(**rows[0]) if rows else None

    async def rows(self, session_id: str, after: int, limit: int) -> tuple[Entry, ...]:
        [rows] = await self._database.read(step("flush_rows", session_id=session_id, after=after, limit=limit))
        return tuple(Entry(r["role"], r["text"], r["inbound_id"], orjson.loads(r["data"])) for r in reversed(rows))

    async def begin(self, session_id: str, turn_id: str) -> int | None:
        """Count a try, signed with `turn_id`, and give its number; None when there is none left."""
        values = {"session_id": session_id, "turn_id": turn_id, "try_limit": TRIES}
        [rows] = await self._database.write(step("flush_begin", **values))
        return rows[0]["tries"] if rows else None

    async def failed(self, session_id: str, turn_id: str, later_ms: int) -> None:
        await self._database.write(step("flush_failed", session_id=session_id, turn_id=turn_id, later=later_ms))

    async def close(self, session_id: str, standing: Standing, state: str, upto: int) -> None:
        """End it without notes."""
        values = {"session_id": session_id, "version": standing.version, "state": state, "upto": upto}
        await self._database.write(step("flush_close", **values))

    async def done(self, session_id: str, turn_id: str, standing: Standing, owner: str, notes: Sequence[str]) -> bool:
        """Keep the notes and mark the session as looked at: both, or neither because it has moved on."""
        signed = {"session_id": session_id, "turn_id": turn_id}
        mark = step("flush_done", upto=standing.message_count, version=standing.version, **signed)
        kept = (step("flush_note", owner=owner, text=storable(note), now=now_ms(), **signed) for note in notes)
        results = await self._database.write(mark, *kept)
        return bool(results[0])
