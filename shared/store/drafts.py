"""Drafts: a message that shows an answer while it is written, and that the finished answer takes the place of.

A draft is a row of table outbox like any part: it is sent in order with the others of its chat, and a crash at any moment
leaves either no draft or one whose receipt will be known. An inbound has one draft, whichever attempt opened it, so the next
attempt goes on with the same message.
"""

from __future__ import annotations

from typing import Protocol, Unpack

from shared.clock import now_ms
from shared.messages import Mail, Part, Reply
from shared.store.database import Database
from shared.store.database.statements import Step, declared
from shared.store.parts import PartRow, parts_of, turn_of_part
from shared.value import value

_PREFIX = "draft_"


class DraftRow(PartRow):
    """The part, and the inbound whose answer it shows."""

    id: str


class DraftsSql(Protocol):
    """The statements of drafts.sql, with the values that each needs."""

    def draft_open(self, **row: Unpack[DraftRow]) -> Step: ...
    def draft_wanted(self, *, id: str) -> Step: ...
    def draft_of(self, *, turn_id: str) -> Step: ...


sql = declared(DraftsSql)


@value
class Draft:
    """A draft as the outbox knows it. `receipt` is empty until it is sent, and stays so if it never will be."""

    receipt: str
    is_over: bool  # it was sent, or given up


@value
class OpenedDraft:
    """A draft that was added just now, to be published."""

    destination: str
    part_id: int


class Drafts:
    """The drafts of answers that are being written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, mail: Mail, text: str, session_key: str) -> OpenedDraft | None:
        """Let a draft with this text be sent. None: the message has ended, or has its draft already, and nothing was added."""
        turn_id = draft_id(mail.inbound.id)
        destination, [row] = parts_of((mail,), (Reply(text),), turn_id=turn_id, session_key=session_key, now=now_ms())
        [rows] = await self._database.write(_opening(mail.inbound.id, row))
        return OpenedDraft(destination, rows[0]["id"]) if rows else None

    async def find(self, draft: str) -> Draft | None:
        """What became of the draft with this id; None: there is none."""
        [rows] = await self._database.read(sql.draft_of(turn_id=draft))
        if not rows:
            return None
        return Draft(rows[0]["receipt"] or "", rows[0]["state"] not in ("pending", "sending"))

    async def is_wanted(self, part: Part) -> bool:
        """Whether a part may be sent: a draft only while its answer is being written. One that was added in the moment in which
        the answer was committed would follow it, and nothing would take its place. Other parts cost nothing here."""
        if not is_draft(part):
            return True
        [rows] = await self._database.read(sql.draft_wanted(id=turn_of_part(part).removeprefix(_PREFIX)))
        return bool(rows)


def _opening(inbound_id: str, part: PartRow) -> Step:
    return sql.draft_open(id=inbound_id, **part)


def draft_id(inbound_id: str) -> str:
    """The id of the one draft that an inbound can have. transcript.sql finds it the same way."""
    return f"{_PREFIX}{inbound_id}"


def is_draft(part: Part) -> bool:
    """Whether a part shows an answer that is still being written."""
    return turn_of_part(part).startswith(_PREFIX)
