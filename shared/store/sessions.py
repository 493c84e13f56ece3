"""Sessions, turns and transcripts as lists and operators read them: tables sessions, routes, messages, turns.

Nothing is written here; turns write all of it (shared/store/commits.py). Whatever these methods show was committed.
"""

from __future__ import annotations

from typing import Protocol

from shared.store import facts, journal
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared

PREVIEW = 120  # characters


class SessionsSql(Protocol):
    """The statements of sessions.sql, with the values that each needs."""

    def session_by_key(self, *, session_key: str) -> Step: ...
    def session_by_id(self, *, session_id: str) -> Step: ...
    def sessions_listed(self, *, since: int, limit: int) -> Step: ...
    def messages_of_session(self, *, session_id: str, limit: int) -> Step: ...
    def turn_by_id(self, *, turn_id: str) -> Step: ...
    def export_sessions(self, *, after: str, limit: int) -> Step: ...
    def export_messages(self, *, session_id: str, after: int, limit: int) -> Step: ...


sql = declared(SessionsSql)


class Sessions:
    """Reads what was committed, never anything half written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, key_or_id: str) -> Row | None:
        """The session that a key talks to, or the session with this id."""
        by_key, by_id = await self._database.read(
            sql.session_by_key(session_key=key_or_id), sql.session_by_id(session_id=key_or_id)
        )
        rows = by_key or by_id
        return rows[0] if rows else None

    async def listed(self, limit: int, since: int = 0) -> list[Row]:
        """Sessions active at or after `since` (wall clock, ms), the last active first, each with a preview."""
        [rows] = await self._database.read(sql.sessions_listed(since=since, limit=limit))
        return [{**row, "preview": preview(row["preview"] or "")} for row in rows]

    async def messages(self, session_id: str, limit: int) -> list[Row]:
        """The end of a transcript, oldest first, with rows that left the conversation."""
        [rows] = await self._database.read(sql.messages_of_session(session_id=session_id, limit=limit))
        return rows[::-1]

    async def turn(self, turn_id: str) -> Row | None:
        """A turn that was committed. None: there is none, or it has not ended."""
        [rows] = await self._database.read(sql.turn_by_id(turn_id=turn_id))
        return rows[0] if rows else None

    async def page(self, after: str, limit: int) -> list[Row]:
        """Sessions by id, from after a given one on."""
        [rows] = await self._database.read(sql.export_sessions(after=after, limit=limit))
        return rows

    async def current_and_facts(self, session_id: str, session_key: str) -> tuple[bool, dict[str, str]]:
        """Whether a key talks to this session now, and the session's facts."""
        routes, known = await self._database.read(
            journal.sql.route_by_key(session_key=session_key), facts.sql.facts_of(scope=session_id)
        )
        current = bool(routes) and routes[0]["session_id"] == session_id
        return current, {row["name"]: row["value"] for row in known}

    async def messages_page(self, session_id: str, after: int, limit: int) -> list[Row]:
        """A transcript from after a given row on, oldest first."""
        [rows] = await self._database.read(sql.export_messages(session_id=session_id, after=after, limit=limit))
        return rows


def preview(text: str) -> str:
    """The first words of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW else line[: PREVIEW - 1] + "…"
