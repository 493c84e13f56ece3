"""Titles of sessions: column `title` of table sessions. A title is written at once or not at all, outside of any turn."""

from __future__ import annotations

from typing import Protocol

from shared.codec import storable
from shared.context.marks import REMOVED
from shared.store.database import Database
from shared.store.database.statements import Step, declared


class TitlesSql(Protocol):
    """The statements of titles.sql, with the values that each needs."""

    def title_if_none(self, *, session_id: str, title: str, removed: str) -> Step: ...


sql = declared(TitlesSql)


class Titles:
    """Gives sessions titles that a model suggested. A title that a person chose is never replaced."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def suggest(self, session_id: str, title: str) -> bool:
        """Give the session a title if it has none. False: it has one, is gone, or has lost words of somebody who was forgotten."""
        step = sql.title_if_none(session_id=session_id, title=storable(title), removed=REMOVED)
        [rows] = await self._database.write(step)
        return bool(rows)
