"""The sessions of an owner: listed, found and never anybody else's. Lists read no transcripts."""

from __future__ import annotations

from shared.store.database import Database, Row, step
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


class Owned:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def newest(
        self, owner: str, *, limit: int, but: str = "", titled: bool = False, search: str = "", place: str = ""
    ) -> list[Listed]:
        """Those first that were talked in last. `but` is left out; `search` is looked for in titles; `place` leaves only
        what was begun in a chat (see SessionKey.place)."""
        about = {"owner": owner, "but": but, "untitled": int(not titled), "pattern": _containing(search)}
        [rows] = await self._database.read(step("sessions_of_owner", limit=limit, place=place, **about))
        return [Listed(**row) for row in rows]

    async def everybodys(self, *, limit: int, search: str = "", place: str = "") -> list[Listed]:
        """For an admin."""
        about = {"pattern": _containing(search), "place": place}
        [rows] = await self._database.read(step("sessions_of_all", limit=limit, **about))
        return [Listed(**row) for row in rows]

    async def find(self, owner: str, name: str) -> Row | None:
        """The session with this id or else this title; of a title that was continued as `title #2`, `title #3`, the newest.
        None also where it is another's."""
        values = {"wanted": name, "numbered": f"{name.translate(_WILD)} #%"}
        [rows] = await self._database.read(step("session_of_owner", owner=owner, **values))
        known = [row for row in rows if row["title"] is None or row["id"] == name or _continues(row["title"], name)]
        return known[0] if known else None

    async def called(self, owner: str, title: str, but: str) -> bool:
        """Whether another session of the owner has this title."""
        [rows] = await self._database.read(step("title_of_owner", owner=owner, title=title, but=but))
        return bool(rows)

    async def spoken(self, session_id: str, skip: int) -> tuple[int, int | None]:
        """How often the user spoke, and the number of the row where he did so for the time after `skip`."""
        [rows] = await self._database.read(step("user_rows", session_id=session_id, skip=skip))
        return rows[0]["spoken"], rows[0]["n"]


def _containing(words: str) -> str:
    return f"%{words.lower().translate(_WILD)}%"


def _continues(title: str, name: str) -> bool:
    """Whether it is that title, or `name #2` and so on."""
    rest = title[len(name) :]
    return not rest or (rest.startswith(" #") and rest[2:].isdecimal())
