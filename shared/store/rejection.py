"""Ending one message that waits behind others, without a turn. Tables: inbox, outbox.

The message is ended and the chat is told in one transaction, or neither happens. A turn that answers the message commits
only while it waits, so whichever of the two comes first wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict, Unpack

from shared.clock import now_ms
from shared.ids import fresh_id
from shared.mail import encode_mail
from shared.messages import Mail, Reply, State
from shared.store.database import Database
from shared.store.database.statements import Step, declared
from shared.store.parts import PartRow, parts_of
from shared.value import value


class RejectedRow(TypedDict):
    """A row of table inbox for a message that only Redis knew."""

    id: str
    event_id: str
    platform: str
    session_key: str
    seq: int
    payload: str
    state: str
    reason: str
    attempts: int
    turn_id: str
    received_at: int
    now: int


class NoticeRow(TypedDict):
    """A row of table outbox that tells the chat of rejected message `id`."""

    id: str
    idempotency_key: str
    turn_id: str
    ordinal: int
    conversation: str
    destination: str
    platform: str
    payload: str
    now: int


class RejectionSql(Protocol):
    """The statements of rejection.sql, with the values that each needs."""

    def drop_waiting(self, *, id: str, session_key: str, reason: str, turn_id: str, now: int) -> Step: ...
    def drop_unjournaled(self, **row: Unpack[RejectedRow]) -> Step: ...
    def drop_notice(self, **row: Unpack[NoticeRow]) -> Step: ...


sql = declared(RejectionSql)


@value
class Rejected:
    """A message that was ended, with the outbox rows that tell its chat."""

    destination: str
    outbox: tuple[int, ...]


class Rejections:
    """Ends messages that wait behind others, for an operator."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reject_waiting(
        self, session_key: str, mail: Mail, replies: Sequence[Reply], reason: str
    ) -> Rejected | None:
        """End one message that waits behind another of its key. The session is not touched: a turn that runs there goes on,
        unless it answers this message too. None: the message has ended, or is the first in line. AlreadyDone: only Redis
        knew the message, and it has ended.
        """
        turn_id, now = f"drop_{fresh_id()}", now_ms()
        destination, parts = parts_of((mail,), replies, turn_id=turn_id, session_key=session_key, now=now)
        id = mail.inbound.id
        drop = (
            sql.drop_waiting(id=id, session_key=session_key, reason=reason, turn_id=turn_id, now=now)
            if mail.journaled
            else _unjournaled(mail, session_key, reason, turn_id, now)
        )
        dropped, *told = await self._database.write(drop, *(_notice(part, id) for part in parts))
        return Rejected(destination, tuple(row["id"] for [row] in told)) if dropped else None


def _unjournaled(mail: Mail, session_key: str, reason: str, turn_id: str, now: int) -> Step:
    inbound = mail.inbound
    return sql.drop_unjournaled(
        id=inbound.id,
        event_id=inbound.event_id,
        platform=inbound.source.platform,
        session_key=session_key,
        seq=mail.seq,
        payload=(mail.payload or encode_mail(inbound)).decode(),
        state=State.REJECTED.value,
        reason=reason,
        attempts=0,
        turn_id=turn_id,
        received_at=inbound.received_at,
        now=now,
    )


def _notice(part: PartRow, id: str) -> Step:
    return sql.drop_notice(
        id=id,
        idempotency_key=part["idempotency_key"],
        turn_id=part["turn_id"],
        ordinal=part["ordinal"],
        conversation=part["conversation"],
        destination=part["destination"],
        platform=part["platform"],
        payload=part["payload"],
        now=part["now"],
    )
