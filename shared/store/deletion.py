"""Deleting a conversation for good: its words leave every table and every index in one transaction.

What stays has no words: the journal's rows, so that a redelivery is still known, the turns, and what was spent. A
reply that is still to be sent goes too. Requests that nobody understood belong to no conversation: `keyturn dead drop`.
"""

from __future__ import annotations

from shared.errors import Unavailable
from shared.lane_key import ControlKey, parse_key
from shared.session_key import SessionKey
from shared.store import sessions
from shared.store.database import Database, Row, Step, step
from shared.store.search import row_grams

TRIES = 10  # against a housekeeper that indexes the session at the same time
MERGE_PAGES = 500  # of the search index in one transaction: turns wait for SQLite's one writer meanwhile
# Where words of a session are kept. Dead letters and replies are found by the rows of journal and outbox: they come first.
_SAID = ("search", "notes", "flushes", "dead", "outbox", "inbox", "messages", "facts")

_NO_TURN = ("dead", "inbox", "outbox")  # where words are that reached no turn: they are found by key and time
_EVER = 2**62


class Deletion:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def delete(self, session_id: str, version: int) -> bool:
        """Remove a session and all that was said in it, unless it has moved on since it was looked at. Its key then
        begins an empty one. Reads the whole journal: something for an operator, not for a turn."""
        for _ in range(TRIES):
            [found] = await self._database.read(sessions.sql.session_by_id(session_id=session_id))
            if not found or found[0]["version"] != version:
                return False
            if await self._deleted(session_id, version):
                await self._delete_controls(session_id)
                await self._merge_index()
                return True
        raise Unavailable("the session is being indexed for search all the time: try again")

    async def _deleted(self, session_id: str, version: int) -> bool:
        """False: it has moved on, or was indexed further while its words were read."""
        [far] = await self._database.read(step("search_far", session_id=session_id))
        indexed, keys = await self._indexed(session_id), await self._keys(session_id)
        gone, *_ = await self._database.write(
            step("delete_session", session_id=session_id, version=version, searched=far[0]["searched"] if far else 0),
            *(self._forget_grams(row) for row in indexed),
            *(step(f"delete_{name}", session_id=session_id) for name in _SAID),
            *(step(f"delete_key_{name}", session_id=session_id, **key) for key in keys for name in _NO_TURN),
        )
        return bool(gone)

    async def _keys(self, session_id: str) -> list[Row]:
        """The keys that talked in the session, each with the time in which it did."""
        [rows] = await self._database.read(step("delete_keys", session_id=session_id))
        for row in rows:
            row["until"] = _EVER if row.pop("stays") else row["until"]
        return rows

    async def _delete_controls(self, session_id: str) -> None:
        """Delete the control messages of the session's keys, which have sessions of their own."""
        for key in await self._keys(session_id):
            if isinstance(conversation := parse_key(key["session_key"]), SessionKey):
                query = sessions.sql.session_by_key(session_key=str(ControlKey(conversation)))
                [controls] = await self._database.read(query)
                for row in controls:
                    await self.delete(row["id"], row["version"])

    async def _indexed(self, session_id: str) -> list[Row]:
        """The rows that SQLite's index has to be told to forget, by their grams, which are made again from the text.
        PostgreSQL keeps grams in rows of a table."""
        if self._database.dialect != "sqlite":
            return []
        [rows] = await self._database.read(step("delete_grams_rows", session_id=session_id))
        return rows

    def _forget_grams(self, row: Row) -> Step:
        grams = row_grams(row["owner"], row["text"])
        return step("delete_grams", place=row["place"], grams=grams, session_id=row["session_id"])

    async def _merge_index(self) -> None:
        """Let SQLite write the search index anew, piece by piece: until then it keeps deleted grams beside a mark
        that they are deleted. The bound is for rows that are being indexed meanwhile."""
        if self._database.dialect != "sqlite":
            return
        [[size]] = await self._database.read(step("search_size"))
        await self._database.write(step("search_merge", pages=-MERGE_PAGES))  # negative: begin with all there is
        for _ in range(size["pages"] // MERGE_PAGES + TRIES):
            [[size]] = await self._database.read(step("search_size"))
            if size["segments"] <= 1:
                return
            await self._database.write(step("search_merge", pages=MERGE_PAGES))
