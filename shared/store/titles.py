"""What conversations are called in lists, and how they begin. Neither reads a whole transcript."""

from __future__ import annotations

from shared.codec import storable
from shared.store.database import Database, Row, step

PREVIEW = 120


class Titles:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def suggest(self, session_id: str, title: str) -> bool:
        """Give the session a title if it has none; what a person chose is never replaced."""
        [rows] = await self._database.write(step("title_if_none", session_id=session_id, title=storable(title)))
        return bool(rows)

    async def listed(self, limit: int, since: int = 0) -> list[Row]:
        """Sessions active at or after `since` (wall clock, ms), the last active first, each with a preview."""
        [rows] = await self._database.read(step("sessions_listed", since=since, limit=limit))
        return [{**row, "preview": preview(row["preview"] or "")} for row in rows]


def preview(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW else line[: PREVIEW - 1] + "…"
