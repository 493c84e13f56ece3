"""The sessions of an owner, from tables sessions and messages: listed, found, and never anybody else's.

Nothing is written here. Lists read the first words of each session, never whole transcripts.
"""

from __future__ import annotations

from typing import Protocol

from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.value import value

_WILD = str.maketrans({"!": "!!", "%": "!%", "_": "!_"})


@value
class Listed:
    """A session as a list shows it."""

    id: str
    session_key: str
    title: str | None
    message_count: int
    created_at: int
    updated_at: int
    preview: str | None


class OwnedSql(Protocol):
    """The statements of owned.sql, with the values that each needs."""

    def sessions_of_owner(
        self, *, owner: str, but: str, untitled: int, pattern: str, place: str, limit: int
    ) -> Step: ...
    def sessions_of_all(self, *, pattern: str, place: str, limit: int) -> Step: ...
    def session_of_owner(self, *, owner: str, wanted: str, numbered: str) -> Step: ...
    def title_of_owner(self, *, owner: str, title: str, but: str) -> Step: ...
    def user_rows(self, *, session_id: str, skip: int) -> Step: ...


sql = declared(OwnedSql)


class Owned:
    """Finds sessions by owner: a session of somebody else is as good as none."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def newest(
        self, owner: str, *, limit: int, but: str = "", titled: bool = False, search: str = "", place: str = ""
    ) -> list[Listed]:
        """The owner's sessions, the last active first, except the one with id `but`. `search` must be part of the title;
        `place` keeps only what began in one chat (see SessionKey.place)."""
        query = sql.sessions_of_owner(
            owner=owner, but=but, untitled=int(not titled), pattern=_containing(search), place=place, limit=limit
        )
        [rows] = await self._database.read(query)
        return [Listed(**row) for row in rows]

    async def everybodys(self, *, limit: int, search: str, place: str) -> list[Listed]:
        """Everybody's sessions, the last active first: for an admin."""
        query = sql.sessions_of_all(pattern=_containing(search), place=place, limit=limit)
        [rows] = await self._database.read(query)
        return [Listed(**row) for row in rows]

    async def find(self, owner: str, name: str) -> Row | None:
        """The session with this id or else this title; of a title that was continued as `title #2`, `title #3`, the newest.
        None also where it is another's."""
        continued = f"{name.translate(_WILD)} #%"
        [rows] = await self._database.read(sql.session_of_owner(owner=owner, wanted=name, numbered=continued))
        known = [row for row in rows if row["title"] is None or row["id"] == name or _continues(row["title"], name)]
        return known[0] if known else None

    async def called(self, owner: str, title: str, but: str) -> bool:
        """Whether another session of the owner has this title."""
        [rows] = await self._database.read(sql.title_of_owner(owner=owner, title=title, but=but))
        return bool(rows)

    async def spoken(self, session_id: str, skip: int) -> tuple[int, int | None]:
        """How often the user spoke, and the number of the row where they did so after `skip` others."""
        [rows] = await self._database.read(sql.user_rows(session_id=session_id, skip=skip))
        return rows[0]["spoken"], rows[0]["n"]


def _containing(words: str) -> str:
    return f"%{words.lower().translate(_WILD)}%"


def _continues(title: str, name: str) -> bool:
    """Whether it is that title, or `name #2` and so on."""
    rest = title[len(name) :]
    return not rest or (rest.startswith(" #") and rest[2:].isdecimal())
