"""Dead letters: inbounds, replies and requests that were set aside, with the reason, in table dead.

A letter is open until somebody replays or drops it. It is written in the transaction that gives up on its message, so after
a crash there are both or neither. What is set aside again, by a replay or a redelivery, is recorded once, even after its
letter was dropped.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from typing import Protocol, TypedDict, Unpack

import orjson

from shared.clock import now_ms
from shared.codec import storable
from shared.dead_reasons import MessageReason
from shared.mail import encode_mail
from shared.messages import Inbound, Mail, Reply
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.parts import PartRow, parts_of
from shared.value import value

PAYLOAD_LIMIT = 4096  # characters kept of something that could not be understood
FULL: MessageReason = "mailbox full"
TELL_AGAIN = timedelta(hours=1)  # after the last message of a chat that was refused: then it is told again


@value
class Told:
    """The part that tells a chat, and where it goes."""

    destination: str
    part_id: int


class Letter(TypedDict):
    """A row of table dead. `once`: the same thing is recorded once."""

    once: str
    kind: str
    ref: str
    session_key: str | None
    reason: str
    detail: str
    payload: str
    attempts: int
    now: int


class RefusalRow(PartRow):
    """The part that tells a chat of a refused message, unless it was told for the same reason since a given time."""

    reason: str
    since: int


class Matched(TypedDict):
    """Which letters are meant; None: it does not matter."""

    kind: str | None
    reason: str | None
    session_key: str | None


class NextMatched(Matched):
    """A page of them."""

    after: int
    newest: int
    limit: int


class DeadSql(Protocol):
    """The statements of dead.sql, with the values that each needs."""

    def set_aside(self, **letter: Unpack[Letter]) -> Step: ...
    def refuse_notice(self, **notice: Unpack[RefusalRow]) -> Step: ...
    def dead_list(self, *, state: str, limit: int) -> Step: ...
    def dead_matching(self, **wanted: Unpack[Matched]) -> Step: ...
    def dead_next(self, **wanted: Unpack[NextMatched]) -> Step: ...
    def dead_by_id(self, *, id: int) -> Step: ...
    def dead_close(self, *, id: int, state: str) -> Step: ...
    def dead_move(self, *, id: int, before: str, after: str) -> Step: ...
    def outbox_again(self, *, id: int, dead_id: int) -> Step: ...


sql = declared(DeadSql)


class DeadLetters:
    """Messages and replies that were set aside. Each is recorded once, however often that is tried, and stays until it is
    replayed or dropped."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set_aside(
        self, kind: str, ref: str, session_key: str | None, reason: str, detail: str, payload: str
    ) -> bool:
        """Record something that cannot be processed. Text only, and not much of it. False: it was there before."""
        digest = blake2b(orjson.dumps([ref, session_key, storable(payload)]), digest_size=16).hexdigest()
        letter = sql.set_aside(
            once=f"{kind}:{digest}",
            kind=kind,
            ref=ref,
            session_key=session_key,
            reason=reason,
            detail=storable(detail),
            payload=storable(payload[:PAYLOAD_LIMIT]),
            attempts=0,
            now=now_ms(),
        )
        [rows] = await self._database.write(letter)
        return bool(rows)

    async def refuse(self, inbound: Inbound, session_key: str, notice: str) -> Told | None:
        """Set an inbound aside that its key has no room for, whole, so that it can be replayed; and tell the chat, unless
        it was told of another one not long ago. Both or neither. Gives the part that is to be sent, if there is one."""
        now, mail = now_ms(), Mail(0, without_names(inbound))
        turn_id = f"full_{inbound.id}"
        destination, [part] = parts_of([mail], [Reply(notice)], turn_id=turn_id, session_key=session_key, now=now)
        letter = sql.set_aside(
            once=f"{FULL}:{inbound.id}",
            kind="inbound",
            ref=inbound.id,
            session_key=session_key,
            reason=FULL,
            detail="too many messages wait",
            payload=storable(encode_mail(inbound).decode()),
            attempts=0,
            now=now,
        )
        told, _ = await self._database.write(_notice(part), letter)
        return Told(destination, told[0]["id"]) if told else None

    async def all(self, *, state: str, limit: int) -> list[Row]:
        """Dead letters in this state, newest first."""
        [rows] = await self._database.read(sql.dead_list(state=state, limit=limit))
        return rows

    async def matching(self, **wanted: Unpack[Matched]) -> Row:
        """How many open letters match (`letters`), of how many `conversations`, and the number of the `newest`, if there is one."""
        [[row]] = await self._database.read(sql.dead_matching(**wanted))
        return row

    async def next_matching(self, **wanted: Unpack[NextMatched]) -> list[int]:
        """The numbers of the next open letters that match, oldest first."""
        [rows] = await self._database.read(sql.dead_next(**wanted))
        return [row["id"] for row in rows]

    async def find(self, id: int) -> Row | None:
        """One dead letter. None: there is none with this id."""
        [rows] = await self._database.read(sql.dead_by_id(id=id))
        return rows[0] if rows else None

    async def close(self, id: int, state: str) -> bool:
        """Mark as replayed or dropped. False: somebody did before."""
        [rows] = await self._database.write(sql.dead_close(id=id, state=state))
        return bool(rows)

    async def send_again(self, id: int, part_id: int) -> tuple[bool, str | None]:
        """Replay a buried reply. Gives whether the letter was open, and the destination that now waits for the part, if any."""
        moved, parts, _ = await self._database.write(
            sql.dead_move(id=id, before="open", after="replaying"),  # seen by nobody else, and locks the letter
            sql.outbox_again(id=part_id, dead_id=id),
            sql.dead_move(id=id, before="replaying", after="replayed"),
        )
        return bool(moved), parts[0]["destination"] if parts else None


def _notice(part: PartRow) -> Step:
    since = part["now"] - int(TELL_AGAIN.total_seconds() * 1000)
    return sql.refuse_notice(reason=FULL, since=since, **part)


def without_names(inbound: Inbound) -> Inbound:
    """The part outlives its conversation: it holds no more than is needed to send it."""
    return replace(inbound, source=replace(inbound.source, chat_name=None, user_name=None, topic=None))
