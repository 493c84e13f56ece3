"""The outbox: replies decided but not yet known to be delivered.

pending -> sending (written before the call) -> sent, or back to pending, or buried. A row found in `sending` by somebody
else, a lease time after that attempt began, was interrupted: whether it arrived is unknown, and it is flagged `ambiguous`.
The database's clock says when an attempt began and how long ago. `lease` is the token of the lease under which an attempt
begins: whoever did not hear the answer of `take` or `sending` may call it again. All others may be repeated too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypedDict, Unpack

from shared.clock import now_ms
from shared.codec import encode_text
from shared.errors import TooNew
from shared.lane_key import Destination
from shared.messages import Part
from shared.part_record import decode_part
from shared.store import closed_chats
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.value import value

OPEN_SECONDS = 35.0  # a transaction of ours ends within its statement timeout of 30 s
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.5  # between looks at who still writes
_LAST = 2**63 - 1
BURIED_VERSION = 1  # of what the dead letter of a reply holds; people read it, and no process does


class BuriedLetter(TypedDict):
    """The dead letter of part `id`; `ref` is the same id as text."""

    id: int
    ref: str
    session_key: str
    reason: str
    detail: str
    payload: str
    attempts: int
    now: int


@value
class SentPart:
    """What is known of how a part was sent. No receipt: the platform's answer has not come."""

    idempotency_key: str
    destination: Destination
    receipt: str | None


class OutboxSql(Protocol):
    """The statements of outbox.sql, with the values that each needs."""

    def outbox_of(self, *, destination: str, limit: int) -> Step: ...
    def outbox_take(self, *, destination: str, lease: str) -> Step: ...
    def outbox_sending(self, *, id: int, attempts: int, lease: str) -> Step: ...
    def outbox_sent(self, *, id: int, receipt: str) -> Step: ...
    def outbox_sent_as(self, *, id: int) -> Step: ...
    def outbox_failed(self, *, id: int, attempt: int, reason: str, waits: int) -> Step: ...
    def outbox_ambiguous(self, *, id: int) -> Step: ...
    def bury_part(self, *, id: int, reason: str) -> Step: ...
    def bury_part_letter(self, **letter: Unpack[BuriedLetter]) -> Step: ...
    def outbox_drop(self, *, destination: str, part: int) -> Step: ...
    def outbox_destinations(self, *, after: str, limit: int) -> Step: ...
    def outbox_of_turn(self, *, turn_id: str) -> Step: ...
    def outbox_of_session(self, *, session_key: str, after: int, limit: int) -> Step: ...
    def outbox_of_session_postgres(self, *, session_key: str, after: int, until: int, limit: int) -> Step: ...
    def outbox_writers_postgres(self) -> Step: ...


sql = declared(OutboxSql)


class Outbox:
    """The parts of replies. A part that is `sending` stays so through a crash, and whoever finds it knows that it was perhaps sent."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open_parts(self, destination: str, limit: int) -> list[Part]:
        """What this destination still waits for, in order. TooNew where only a newer worker can read one of them."""
        [rows] = await self._database.read(sql.outbox_of(destination=destination, limit=limit))
        return [_part(row) for row in rows]

    async def unsent(self, destination: str, limit: int) -> tuple[int, ...]:
        """The numbers of these parts, whoever can read them."""
        [rows] = await self._database.read(sql.outbox_of(destination=destination, limit=limit))
        return tuple(row["id"] for row in rows)

    async def take(self, destination: str, lease: str) -> Part | None:
        """The first of them as it was, and write down that an attempt at it begins. None: there is none, or its last attempt came to
        no end, which is to be looked at before it is sent again. TooNew: only a newer worker can read it; the attempt is
        taken back."""
        [rows] = await self._database.write(sql.outbox_take(destination=destination, lease=lease))
        try:
            return _part(rows[0]) if rows else None
        except TooNew:
            row = rows[0]
            await self._database.write(
                sql.outbox_failed(id=row["id"], attempt=row["attempts"] + 1, reason="for a newer worker", waits=1)
            )
            raise

    async def sending(self, part: Part, lease: str) -> bool:
        """Write down that an attempt at a part that was looked at begins. False: another one began, or it is sent already."""
        begun = sql.outbox_sending(id=part.id, attempts=part.attempts, lease=lease)
        [rows] = await self._database.write(begun)
        return bool(rows)

    async def sent(self, part: Part, receipt: str) -> None:
        """The platform has the part, and gave this receipt."""
        await self._database.write(sql.outbox_sent(id=part.id, receipt=receipt), can_linger=True)

    async def sent_as(self, id: int) -> SentPart | None:
        """How the part with this number was sent, or is being sent. None: there is none."""
        [rows] = await self._database.read(sql.outbox_sent_as(id=id))
        if not rows:
            return None
        to = Destination.parse(rows[0]["destination"])
        return SentPart(rows[0]["idempotency_key"], to, rows[0]["receipt"] or None)

    async def failed(self, part: Part, reason: str, *, asked_to_wait: bool = False) -> None:
        """It stays to be sent again. An attempt that the platform answered with a request to wait is not counted."""
        waits = int(asked_to_wait)
        failed = sql.outbox_failed(id=part.id, attempt=part.attempts + 1, reason=reason, waits=waits)
        await self._database.write(failed)

    async def ambiguous(self, part: Part) -> None:
        """Flag a part that was perhaps sent."""
        await self._database.write(sql.outbox_ambiguous(id=part.id))

    async def bury(self, part: Part, reason: str, detail: str, *, closed: str | None = None) -> None:
        """It will not be sent; a dead letter says why. With the name of its destination in `closed`, the chat is remembered as
        one that takes nothing from us, for the same reason."""
        letter = sql.bury_part_letter(
            id=part.id,
            ref=str(part.id),
            session_key=part.session_key,
            reason=reason,
            detail=detail,
            payload=encode_text({"v": BURIED_VERSION, "text": part.text, "media": part.media}),
            attempts=part.attempts + 1,
            now=now_ms(),
        )
        steps = [sql.bury_part(id=part.id, reason=reason), letter]
        if closed is not None:
            steps.append(closed_chats.sql.close_chat(destination=closed, reason=detail))
        await self._database.write(*steps)

    async def drop(self, destination: str, part: int) -> list[int]:
        """Give up what a destination waits for, or with a number that part only. Gives the numbers of the parts."""
        [rows] = await self._database.write(sql.outbox_drop(destination=destination, part=part))
        return [row["id"] for row in rows]

    async def waiting_destinations(self, *, after: str, limit: int) -> Sequence[tuple[str, int]]:
        """Destinations that parts wait for, each with its first row, in order, from `after` on."""
        [rows] = await self._database.read(sql.outbox_destinations(after=after, limit=limit))
        return [(row["destination"], row["first"]) for row in rows]

    async def of_turn(self, turn_id: str) -> list[Row]:
        """The parts of a turn in their order, and what became of each."""
        [rows] = await self._database.read(sql.outbox_of_turn(turn_id=turn_id))
        return rows

    async def of_session(self, session_key: str, *, after: int, limit: int = 100) -> list[Row]:
        """The parts of a session that came after a given one, for those who follow it: none with a lower number than these
        is committed later. May be cancelled at any time, at the cost of no connection."""
        if self._database.dialect == "postgres":
            return await self._settled(session_key, after, limit)
        return await self._read_to_the_end(sql.outbox_of_session(session_key=session_key, after=after, limit=limit))

    async def _settled(self, session_key: str, after: int, limit: int) -> list[Row]:
        """PostgreSQL numbers rows before their transaction commits, so a lower number may come to light after a higher one.
        A transaction that could hold one was open when the higher one was read: when no writer of the outbox from then is
        left, a second look shows all."""

        async def read(until: int) -> list[Row]:
            query = sql.outbox_of_session_postgres(session_key=session_key, after=after, until=until, limit=limit)
            return await self._read_to_the_end(query)

        rows = await read(_LAST)
        if not rows or rows[0]["settled"]:
            return rows
        await self._writers_end()
        return await read(rows[-1]["id"])

    async def _writers_end(self) -> None:
        """Wait until the present writers of the outbox have ended, but no longer than a transaction of ours can last."""
        writers, until, pause = await self._writers(), time.monotonic() + OPEN_SECONDS, FIRST_PAUSE_SECONDS
        while writers and time.monotonic() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            writers &= await self._writers()

    async def _writers(self) -> set[str]:
        return {row["writer"] for row in await self._read_to_the_end(sql.outbox_writers_postgres())}

    async def _read_to_the_end(self, query: Step) -> list[Row]:
        """Read, to the end even if the caller is cancelled: a query that is cut off would cost its connection."""
        [rows] = await asyncio.shield(asyncio.ensure_future(self._database.read(query)))
        return rows


def _part(row: Row) -> Part:
    """TooNew where only a newer worker can read it."""
    try:
        record = decode_part(row["payload"])
    except TooNew as error:
        raise TooNew(str(error), written_at=row["created_at"]) from None
    return Part(
        id=row["id"],
        idempotency_key=row["idempotency_key"],
        session_key=row["session_key"],
        source=record.source,
        in_reply_to=record.in_reply_to,
        part=record.part,
        parts=record.parts,
        text=record.text,
        media=record.media,
        attempts=row["attempts"],
        waits=row["waits"],
        answers=record.answers,
        sending=row["state"] == "sending",
        sending_for=timedelta(milliseconds=row.get("sending_ms") or 0),
        elsewhere=record.to,
        edits=record.edits,
        draft=record.draft,
        shown=record.shown,
        closed=row.get("closed"),
        trace=record.trace,
        choices=record.choices,
    )
