"""Deleting a conversation for good: its words leave every table and every index in one transaction.

What stays has no words: the journal's rows, so that a redelivery is still known, the turns, and what was spent. A
reply that is still to be sent goes too. Control messages belong to no session, so all those of the conversation's keys go.
Its files go later, when the housekeeper finds that nothing refers to them. Requests that nobody understood belong to no conversation: `keyturn dead drop`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shared.errors import Unavailable
from shared.lane_key import ControlKey, conversation_of
from shared.session_key import SessionKey
from shared.store import sessions
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.search import row_grams
from shared.value import value

TRIES = 10  # against a housekeeper that indexes the session at the same time
MERGE_PAGES = 500  # of the search index in one transaction: turns wait for SQLite's one writer meanwhile
_EVER = 2**62


class DeletionSql(Protocol):
    """The statements of deletion.sql, with the values that each needs."""

    def delete_session(self, *, session_id: str, version: int, indexed: int) -> Step: ...
    def delete_search(self, *, session_id: str) -> Step: ...
    def delete_notes(self, *, session_id: str) -> Step: ...
    def delete_flushes(self, *, session_id: str) -> Step: ...
    def delete_dead(self, *, session_id: str) -> Step: ...
    def delete_outbox(self, *, session_id: str) -> Step: ...
    def delete_inbox(self, *, session_id: str) -> Step: ...
    def delete_messages(self, *, session_id: str) -> Step: ...
    def delete_facts(self, *, session_id: str) -> Step: ...
    def delete_steps(self, *, session_id: str) -> Step: ...
    def delete_runs(self, *, session_id: str) -> Step: ...
    def delete_asks(self, *, session_id: str) -> Step: ...
    def delete_blob_references(self, *, session_id: str) -> Step: ...
    def delete_keys(self, *, session_id: str) -> Step: ...
    def delete_tasks(self, *, session_id: str, session_key: str, since: int, until: int) -> Step: ...
    def delete_key_dead(self, *, session_id: str, session_key: str, since: int, until: int) -> Step: ...
    def delete_key_inbox(self, *, session_id: str, session_key: str, since: int, until: int) -> Step: ...
    def delete_key_outbox(self, *, session_id: str, session_key: str, since: int, until: int) -> Step: ...
    def delete_control_dead(self, *, session_id: str, control_key: str) -> Step: ...
    def delete_control_outbox(self, *, session_id: str, control_key: str) -> Step: ...
    def delete_control_inbox(self, *, session_id: str, control_key: str) -> Step: ...
    def search_far(self, *, session_id: str) -> Step: ...
    def delete_grams_rows(self, *, session_id: str) -> Step: ...
    def delete_grams(self, *, session_id: str, place: int, grams: str) -> Step: ...
    def search_size(self) -> Step: ...
    def search_merge(self, *, pages: int) -> Step: ...


sql = declared(DeletionSql)


@value
class _Talked:
    """A key that talked in the session, and the time in which it did."""

    session_key: str
    since: int
    until: int


class Deletion:
    """Removes a session with all that was said in it in one transaction, and then its control messages."""

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
                await self._merge_index()
                return True
        raise Unavailable("the session is being indexed for search all the time: try again")

    async def _deleted(self, session_id: str, version: int) -> bool:
        """False: it has moved on, or was indexed further while its words were read."""
        [far] = await self._database.read(sql.search_far(session_id=session_id))
        indexed, keys = await self._indexed(session_id), await self._keys(session_id)
        gone, *_ = await self._database.write(
            sql.delete_session(session_id=session_id, version=version, indexed=far[0]["indexed"] if far else 0),
            *(self._forget_grams(row) for row in indexed),
            *_words_of_turns(session_id),
            *(statement for key in keys for statement in _control_messages(session_id, key.session_key)),
            *(statement for key in keys for statement in _words_of_no_turn(session_id, key)),
        )
        return bool(gone)

    async def _keys(self, session_id: str) -> list[_Talked]:
        [rows] = await self._database.read(sql.delete_keys(session_id=session_id))
        return [_Talked(r["session_key"], r["since"], _EVER if r["stays"] else r["until"]) for r in rows]

    async def _indexed(self, session_id: str) -> list[Row]:
        """The rows that SQLite's index has to be told to forget, by their grams, which are made again from the text.
        PostgreSQL keeps signatures in rows of a table."""
        if self._database.dialect != "sqlite":
            return []
        [rows] = await self._database.read(sql.delete_grams_rows(session_id=session_id))
        return rows

    def _forget_grams(self, row: Row) -> Step:
        grams = row_grams(row["owner"], row["text"])
        return sql.delete_grams(place=row["place"], grams=grams, session_id=row["session_id"])

    async def _merge_index(self) -> None:
        """Let SQLite write the search index anew, piece by piece: until then it keeps deleted grams beside a mark
        that they are deleted. The bound is for rows that are being indexed meanwhile."""
        if self._database.dialect != "sqlite":
            return
        [[size]] = await self._database.read(sql.search_size())
        await self._database.write(sql.search_merge(pages=-MERGE_PAGES))  # negative: begin with all there is
        for _ in range(size["pages"] // MERGE_PAGES + TRIES):
            [[size]] = await self._database.read(sql.search_size())
            if size["segments"] <= 1:
                return
            await self._database.write(sql.search_merge(pages=MERGE_PAGES))


def _words_of_turns(session_id: str) -> Sequence[Step]:
    """What the session's turns left. Dead letters are found by the rows of outbox and inbox, and steps by those of runs, so
    they come before them."""
    return (
        sql.delete_search(session_id=session_id),
        sql.delete_notes(session_id=session_id),
        sql.delete_flushes(session_id=session_id),
        sql.delete_dead(session_id=session_id),
        sql.delete_outbox(session_id=session_id),
        sql.delete_inbox(session_id=session_id),
        sql.delete_messages(session_id=session_id),
        sql.delete_facts(session_id=session_id),
        sql.delete_steps(session_id=session_id),
        sql.delete_runs(session_id=session_id),
        sql.delete_asks(session_id=session_id),
        sql.delete_blob_references(session_id=session_id),
    )


def _control_messages(session_id: str, session_key: str) -> Sequence[Step]:
    """What the control messages of a key left, whenever they were said. Dead letters come first, as above."""
    control_key = str(ControlKey(SessionKey.parse(conversation_of(session_key))))
    return (
        sql.delete_control_dead(session_id=session_id, control_key=control_key),
        sql.delete_control_outbox(session_id=session_id, control_key=control_key),
        sql.delete_control_inbox(session_id=session_id, control_key=control_key),
    )


def _words_of_no_turn(session_id: str, talked: _Talked) -> Sequence[Step]:
    """What was said to the session and reached no turn: it is found by key and time."""
    key, since, until = talked.session_key, talked.since, talked.until
    return (
        sql.delete_tasks(session_id=session_id, session_key=key, since=since, until=until),
        sql.delete_key_dead(session_id=session_id, session_key=key, since=since, until=until),
        sql.delete_key_inbox(session_id=session_id, session_key=key, since=since, until=until),
        sql.delete_key_outbox(session_id=session_id, session_key=key, since=since, until=until),
    )
