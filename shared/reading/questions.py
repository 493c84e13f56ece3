"""Questions that wait for a person, as operators see them: who was asked, where, since when, and until when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import orjson

from shared.clock import moment, now_ms
from shared.errors import Malformed, NotFound
from shared.settings import Settings
from shared.store import Store
from shared.store.asks import ask_number, read_source
from shared.store.database import Row
from shared.value import value

FIRST = (0, "")


@value
class WaitingQuestion:
    """A question to a person. `text` is somebody's words: for an approval, it holds the arguments of the tool call."""

    id: str
    number: int  # what the chat calls it, among the questions of its turn
    session_key: str
    is_approval: bool
    tools: tuple[str, ...]  # that its turn has planned and not begun
    asked: str | None  # PLATFORM:USER who may answer; None: nobody can tell
    asked_name: str | None
    choices: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    is_overdue: bool  # its time is over, and a housekeeper is about to end it
    text: str

    @property
    def place(self) -> tuple[int, str]:
        """Where it stands in `question_page`."""
        return round(self.created_at.timestamp() * 1000), self.id


async def question_page(store: Store, limit: int, after: tuple[int, str] = FIRST) -> list[WaitingQuestion]:
    """Open questions of everybody, the oldest first, after a place."""
    return await _questions(store, await store.asks.page(after, limit))


async def questions_of(store: Store, session_key: str, limit: int) -> list[WaitingQuestion]:
    """Open questions of one conversation, the oldest first."""
    return await _questions(store, await store.asks.of_key(session_key, limit))


async def question(store: Store, id: str) -> WaitingQuestion:
    """One open question; NotFound where there is none, also if it has ended."""
    row = await store.asks.row(id)
    if row is None:
        raise NotFound(f"there is no question {id:.60}: see `keyturn questions list`")
    if row["state"] != "open":
        raise NotFound(f"the question {id:.60} is no longer open: {row['state']}")
    [found] = await _questions(store, [row])
    return found


def who_may_answer(settings: Settings) -> str:
    """Who may answer a question, in words."""
    if settings.admins_may_approve:
        return "The person who was asked, or an admin in the same conversation (ADMINS_MAY_APPROVE)."
    return "Only the person who was asked, in the conversation where they were asked."


async def _questions(store: Store, rows: Sequence[Row]) -> list[WaitingQuestion]:
    planned: defaultdict[str, list[str]] = defaultdict(list)
    for call in await store.asks.planned_calls(row["run_id"] for row in rows) if rows else ():
        planned[call["run_id"]].append(call["name"])
    now = now_ms()
    return [_question(row, planned[row["run_id"]], now) for row in rows]


def _question(row: Row, tools: Sequence[str], now: int) -> WaitingQuestion:
    asked = name = None
    try:
        source = read_source(row["source"])
        asked, name = f"{source.platform}:{source.user or source.user_alt or source.chat}", source.user_name
    except Malformed:  # written by another version; the housekeeper ends it when its time is over
        pass
    expires = row["expires_at"]
    return WaitingQuestion(
        id=row["id"],
        number=ask_number(row["id"]),
        session_key=row["session_key"],
        is_approval=bool(row["is_approval"]),
        tools=tuple(tools),
        asked=asked,
        asked_name=name,
        choices=tuple(map(str, orjson.loads(row["choices"]))),
        created_at=moment(row["created_at"]),
        expires_at=moment(expires) if expires is not None else None,
        is_overdue=expires is not None and expires <= now,
        text=row["text"],
    )
