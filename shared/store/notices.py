"""Notices to a chat whose message waits: table outbox. A notice is a part of its own, and no row of a transcript.

It is added only while its message waits, so a chat never reads it behind the answer. A message has at most one.
"""

from __future__ import annotations

from typing import Protocol, Unpack

from shared.clock import now_ms
from shared.messages import Mail, Reply
from shared.store.database import Database
from shared.store.database.statements import Step, declared
from shared.store.parts import PartRow, parts_of
from shared.value import value


class NoticePart(PartRow):
    """The part, and the inbound that waits."""

    id: str


class NoticesSql(Protocol):
    """The statements of notices.sql."""

    def notice_waiting(self, **row: Unpack[NoticePart]) -> Step: ...


sql = declared(NoticesSql)


@value
class AddedNotice:
    """A notice that was added just now, to be published."""

    destination: str
    part_id: int


class Notices:
    """What chats are told of messages that wait."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, mail: Mail, text: str, session_key: str) -> AddedNotice | None:
        """Let the chat be told this. None: the message has ended, is not in the journal, or has its notice already."""
        id = mail.inbound.id
        destination, [part] = parts_of(
            (mail,), (Reply(text),), turn_id=f"wait_{id}", session_key=session_key, now=now_ms()
        )
        [rows] = await self._database.write(_waiting(id, part))
        return AddedNotice(destination, rows[0]["id"]) if rows else None


def _waiting(inbound_id: str, part: PartRow) -> Step:
    return sql.notice_waiting(id=inbound_id, **part)
