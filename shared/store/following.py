"""A chat that got a new id: its conversations follow it there. Tables: routes, sessions, turns.

Each conversation moves in a transaction of its own, by the compare-and-set that turns use. The old keys keep their routes:
mail that was accepted under them still ends in the same conversation. After a crash in the middle, or when the platform
repeats the news, conversations that have moved are left alone and the others follow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from shared.clock import now_ms
from shared.errors import Malformed, Unavailable
from shared.ids import fresh_id
from shared.session_key import SessionKey, like_keys_in
from shared.store import sessions
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared

TRIES = 10  # against turns that move the same session on at the same time


class FollowingSql(Protocol):
    """The statements of following.sql, with the values that each needs."""

    def follow_routes(self, *, pattern: str) -> Step: ...
    def follow_session(self, *, session_id: str, turn_id: str, session_key: str, version: int) -> Step: ...
    def follow_route(self, *, session_id: str, turn_id: str, session_key: str, now: int) -> Step: ...
    def follow_turn(self, *, session_id: str, turn_id: str, now: int) -> Step: ...


sql = declared(FollowingSql)


async def follow_chat(database: Database, platform: str, account: str, chat: str, to: str) -> int:
    """Let the conversations of `chat` go on in `to`; how many did. A conversation that began there already is kept."""
    moved = 0
    for _ in range(TRIES):
        lost = False
        for new_key, row in await _to_move(database, platform, account, chat, to):
            if await _move(database, new_key, row):
                moved += 1
            else:
                lost = True
        if not lost:
            return moved
    raise Unavailable("the conversations of a chat that moved are too busy to follow it")


async def _to_move(database: Database, platform: str, account: str, chat: str, to: str) -> list[tuple[SessionKey, Row]]:
    [rows] = await database.read(sql.follow_routes(pattern=like_keys_in(platform, chat)))
    found = []
    for row in rows:
        try:
            key = SessionKey.parse(row["session_key"])
        except Malformed:  # the pattern finds more than the keys of this chat
            continue
        if (key.platform, key.account, key.chat) == (platform, account, chat):
            found.append((replace(key, chat=to), row))
    talking = await database.read(*(sessions.sql.session_by_key(session_key=str(key)) for key, _ in found))
    return [one for one, there in zip(found, talking, strict=True) if not there]


async def _move(database: Database, key: SessionKey, row: Row) -> bool:
    """False: a turn moved the session on in between."""
    session_id, turn_id, new_key = row["session_id"], f"turn_{fresh_id()}", str(key)
    won, *_ = await database.write(
        sql.follow_session(session_id=session_id, turn_id=turn_id, session_key=new_key, version=row["version"]),
        sql.follow_route(session_id=session_id, turn_id=turn_id, session_key=new_key, now=now_ms()),
        sql.follow_turn(session_id=session_id, turn_id=turn_id, now=now_ms()),
    )
    return bool(won)
