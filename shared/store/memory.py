"""Memory: notes that outlive a conversation, and which conversations were looked at for them.

Notes are added and deleted, never changed. A session that ends is queued by the commit that ends it; one that is over by
policy, by the watcher. A try is counted before it begins. Its notes and the mark that it was made are one transaction,
which fails if the session has moved on or another try began: so each row is looked at once, whoever crashes when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import orjson

from shared.clock import now_ms
from shared.codec import storable
from shared.messages import Entry
from shared.store.change import Also
from shared.store.database import Database
from shared.store.database.statements import Step, declared
from shared.value import value

TRIES = 3


@value
class Note:
    """What is remembered of a conversation that ended."""

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
class MemoryStanding:
    """A session that is to be looked at, as it was read."""

    upto: int
    tries: int
    version: int
    message_count: int
    updated_at: int
    ended_at: int | None
    due_at: int


class MemorySql(Protocol):
    """The statements of memory.sql, with the values that each needs."""

    def notes_of(self, *, owner: str, limit: int) -> Step: ...
    def note_add(self, *, owner: str, text: str, session_key: str, now: int) -> Step: ...
    def commit_forget(self, *, owner: str, note_id: int, session_id: str, turn_id: str) -> Step: ...
    def commit_forget_all(self, *, owner: str, session_id: str, turn_id: str) -> Step: ...
    def flush_candidates(self, *, after: int, after_id: str, before: int, limit: int) -> Step: ...
    def flush_queue(self, *, session_id: str, session_key: str, now: int) -> Step: ...
    def flush_due(self, *, before: int, limit: int) -> Step: ...
    def flush_put_off(self, *, session_id: str, due_at: int, later: int) -> Step: ...
    def flush_of(self, *, session_id: str) -> Step: ...
    def flush_rows(self, *, session_id: str, after: int, limit: int) -> Step: ...
    def flush_begin(self, *, session_id: str, turn_id: str, try_limit: int) -> Step: ...
    def flush_failed(self, *, session_id: str, turn_id: str, later: int) -> Step: ...
    def flush_close(self, *, session_id: str, version: int, state: str, upto: int) -> Step: ...
    def flush_done(self, *, session_id: str, turn_id: str, version: int, upto: int) -> Step: ...
    def flush_note(self, *, owner: str, text: str, session_id: str, turn_id: str, now: int) -> Step: ...


sql = declared(MemorySql)


class Memory:
    """Notes, and the sessions that are still to be looked at for them. A session stays queued until its
    notes are kept or it is closed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, owner: str, limit: int) -> list[Note]:
        """The newest notes of an owner, oldest first."""
        [rows] = await self._database.read(sql.notes_of(owner=owner, limit=limit))
        return [Note(**row) for row in reversed(rows)]

    # -- which sessions to look at

    async def add(self, owner: str, session_key: str, text: str) -> bool:
        """Keep a note that was made in the key's present session. False: it is there already. Safe to repeat."""
        [added] = await self._database.write(
            sql.note_add(owner=owner, text=storable(text), session_key=session_key, now=now_ms())
        )
        return bool(added)

    async def quiet(self, after: tuple[int, str], before_ms: int, limit: int) -> list[Quiet]:
        """Sessions last active from `after` (time and id) on and before a time, that have rows nobody looked at."""
        query = sql.flush_candidates(after=after[0], after_id=after[1], before=before_ms, limit=limit)
        [rows] = await self._database.read(query)
        return [Quiet(**row) for row in rows]

    async def queue(self, sessions: Sequence[Quiet]) -> None:
        """Let these sessions be looked at. One that is queued already stays where it is."""
        now = now_ms()
        await self._database.write(
            *(sql.flush_queue(session_id=s.id, session_key=s.session_key, now=now) for s in sessions)
        )

    async def due(self, before_ms: int, limit: int) -> list[Due]:
        """Queued sessions whose time has come."""
        [rows] = await self._database.read(sql.flush_due(before=before_ms, limit=limit))
        return [Due(**row) for row in rows]

    async def put_off(self, due: Due, later_ms: int) -> bool:
        """Look at it later. False: another did the same just now."""
        put_off = sql.flush_put_off(session_id=due.session_id, due_at=due.due_at, later=later_ms)
        [rows] = await self._database.write(put_off)
        return bool(rows)

    # -- looking at one

    async def standing(self, session_id: str) -> MemoryStanding | None:
        """How a session stands that is to be looked at; None when it is not, or no longer."""
        [rows] = await self._database.read(sql.flush_of(session_id=session_id))
        return MemoryStanding(**rows[0]) if rows else None

    async def rows(self, session_id: str, after: int, limit: int) -> tuple[Entry, ...]:
        """The last rows of a session after a given one, oldest first."""
        [rows] = await self._database.read(sql.flush_rows(session_id=session_id, after=after, limit=limit))
        return tuple(Entry(r["role"], r["text"], r["inbound_id"], orjson.loads(r["data"])) for r in reversed(rows))

    async def begin(self, session_id: str, turn_id: str) -> int | None:
        """Count a try, signed with `turn_id`, and give its number; None when there is none left."""
        [rows] = await self._database.write(sql.flush_begin(session_id=session_id, turn_id=turn_id, try_limit=TRIES))
        return rows[0]["tries"] if rows else None

    async def failed(self, session_id: str, turn_id: str, later_ms: int) -> None:
        """A try came to nothing: look again later, unless another try was begun since."""
        await self._database.write(sql.flush_failed(session_id=session_id, turn_id=turn_id, later=later_ms))

    async def close(self, session_id: str, standing: MemoryStanding, state: str, upto: int) -> None:
        """End it without notes."""
        closed = sql.flush_close(session_id=session_id, version=standing.version, state=state, upto=upto)
        await self._database.write(closed)

    async def done(
        self, session_id: str, turn_id: str, standing: MemoryStanding, owner: str, notes: Sequence[str]
    ) -> bool:
        """Keep the notes and mark the session as looked at: both, or neither because it has moved on."""
        done = sql.flush_done(
            session_id=session_id, turn_id=turn_id, version=standing.version, upto=standing.message_count
        )
        kept = (
            sql.flush_note(owner=owner, text=note, session_id=session_id, turn_id=turn_id, now=now_ms())
            for note in dict.fromkeys(
                map(storable, notes)
            )  # PostgreSQL's statements of one call do not see each other's rows
        )
        marked, *_ = await self._database.write(done, *kept)
        return bool(marked)


def forget_note(owner: str, note_id: int) -> Also:
    """Delete one note of an owner with a commit."""
    return lambda stamp: sql.commit_forget(
        owner=owner, note_id=note_id, session_id=stamp.session_id, turn_id=stamp.turn_id
    )


def forget_notes(owner: str) -> Also:
    """Delete all notes of an owner with a commit."""
    return lambda stamp: sql.commit_forget_all(owner=owner, session_id=stamp.session_id, turn_id=stamp.turn_id)
