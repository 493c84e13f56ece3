"""A chat that got a new id: its conversations follow it there, each by a commit of its own.

The old keys keep their routes: mail that was accepted under them still ends in the same conversation. After a crash in
the middle, or when the platform says it again, what has moved is left alone and the rest follows.
"""

from __future__ import annotations

from dataclasses import replace

from shared.clock import now_ms
from shared.errors import Malformed, Unavailable
from shared.ids import fresh_id
from shared.session_key import SessionKey
from shared.store.database import Database, Row, step

TRIES = 10  # against turns that move the same session on at the same time


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
    escaped = str(SessionKey("main", platform, account, "group", chat)).rpartition(":")[2]
    # What the pattern finds too much, for % and _ in ids are its own signs, is sorted out by parsing the keys.
    [rows] = await database.read(step("follow_routes", pattern=f"agent:%:{platform}%:{escaped}%"))
    found = []
    for row in rows:
        try:
            key = SessionKey.parse(row["session_key"])
        except Malformed:
            continue
        if (key.platform, key.account, key.chat) == (platform, account, chat):
            found.append((replace(key, chat=to), row))
    talking = await database.read(*(step("session_by_key", session_key=str(key)) for key, _ in found))
    return [one for one, there in zip(found, talking, strict=True) if not there]


async def _move(database: Database, key: SessionKey, row: Row) -> bool:
    """False: a turn moved the session on in between."""
    signed = {"session_id": row["session_id"], "turn_id": f"turn_{fresh_id()}"}
    won, *_ = await database.write(
        step("follow_session", session_key=str(key), version=row["version"], **signed),
        step("follow_route", session_key=str(key), now=now_ms(), **signed),
        step("follow_turn", now=now_ms(), **signed),
    )
    return bool(won)
