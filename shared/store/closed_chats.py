"""Chats that take nothing from us any more, in table closed_chats: the bot was blocked or removed, or the chat is gone.

A chat is closed by the transaction that buries the part which it refused (outbox.py), or when its platform says later that a
part which it took could not be brought there. Answers are sent to it all the same: who
writes to the bot can hear it again. The first one that arrives opens the chat.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from shared.clock import moment
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.value import value


class ClosedChatsSql(Protocol):
    """The statements of closed_chats.sql, with the values that each needs."""

    def close_chat(self, *, destination: str, reason: str) -> Step: ...
    def open_chat(self, *, destination: str) -> Step: ...
    def closed_chat(self, *, destination: str) -> Step: ...
    def closed_chats_page(self, *, after: str, limit: int) -> Step: ...
    def closed_chats_count(self) -> Step: ...


sql = declared(ClosedChatsSql)


@value
class ClosedChat:
    """A chat that takes nothing from us, why, and since when we know."""

    destination: str
    reason: str
    since: datetime


class ClosedChats:
    """The closed chats of all platforms."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, destination: str) -> ClosedChat | None:
        """The chat, if it is closed."""
        [rows] = await self._database.read(sql.closed_chat(destination=destination))
        return _chat(rows[0]) if rows else None

    async def close(self, destination: str, reason: str) -> None:
        """The chat takes nothing from us. May be repeated: what was said first stays."""
        await self._database.write(sql.close_chat(destination=destination, reason=reason))

    async def open(self, destination: str) -> bool:
        """The chat takes messages again. False: it was not closed."""
        [rows] = await self._database.write(sql.open_chat(destination=destination))
        return bool(rows)

    async def page(self, *, after: str, limit: int) -> list[ClosedChat]:
        """Closed chats in order, after a destination."""
        [rows] = await self._database.read(sql.closed_chats_page(after=after, limit=limit))
        return [_chat(row) for row in rows]

    async def count(self) -> int:
        """How many there are."""
        [rows] = await self._database.read(sql.closed_chats_count())
        count: int = rows[0]["n"]
        return count


def _chat(row: Row) -> ClosedChat:
    return ClosedChat(row["destination"], row["reason"], moment(row["since"]))
