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

import orjson

from shared.clock import now_ms
from shared.codec import decode_address, decode_media, decode_source
from shared.messages import Part
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared

OPEN_SECONDS = 35.0  # a transaction of ours ends within its statement timeout of 30 s
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.5  # between looks at who still writes
_LAST = 2**63 - 1


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


class OutboxSql(Protocol):
    def outbox_of(self, *, destination: str, limit: int) -> Step: ...
    def outbox_take(self, *, destination: str, lease: str) -> Step: ...
    def outbox_sending(self, *, id: int, attempts: int, lease: str) -> Step: ...
    def outbox_sent(self, *, id: int, receipt: str) -> Step: ...
    def outbox_failed(self, *, id: int, attempt: int, reason: str, waits: int) -> Step: ...
    def outbox_ambiguous(self, *, id: int) -> Step: ...
    def bury_part(self, *, id: int, reason: str) -> Step: ...
    def bury_part_letter(self, **letter: Unpack[BuriedLetter]) -> Step: ...
    def outbox_destinations(self, *, after: str, before: int, limit: int) -> Step: ...
    def outbox_of_turn(self, *, turn_id: str) -> Step: ...
    def outbox_of_session(self, *, session_key: str, after: int, limit: int) -> Step: ...
    def outbox_of_session_postgres(self, *, session_key: str, after: int, until: int, limit: int) -> Step: ...
    def outbox_writers_postgres(self) -> Step: ...


sql = declared(OutboxSql)


class Outbox:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def open_parts(self, destination: str, limit: int) -> list[Part]:
        """What this destination still waits for, in order."""
        [rows] = await self._database.read(sql.outbox_of(destination=destination, limit=limit))
        return [_part(row) for row in rows]

    async def take(self, destination: str, lease: str) -> Part | None:
        """The first of them as it was, and write down that an attempt at it begins. None: there is none, or its last attempt came to
        no end, which is to be looked at before it is sent again."""
        [rows] = await self._database.write(sql.outbox_take(destination=destination, lease=lease))
        return _part(rows[0]) if rows else None

    async def sending(self, part: Part, lease: str) -> bool:
        """Write down that an attempt at a part that was looked at begins. False: another one began, or it is sent already."""
        begun = sql.outbox_sending(id=part.id, attempts=part.attempts, lease=lease)
        [rows] = await self._database.write(begun)
        return bool(rows)

    async def sent(self, part: Part, receipt: str) -> None:
        await self._database.write(sql.outbox_sent(id=part.id, receipt=receipt), can_linger=True)

    async def failed(self, part: Part, reason: str, *, asked_to_wait: bool = False) -> None:
        """It stays to be sent again. An attempt that the platform answered with a request to wait is not counted."""
        waits = int(asked_to_wait)
        failed = sql.outbox_failed(id=part.id, attempt=part.attempts + 1, reason=reason, waits=waits)
        await self._database.write(failed)

    async def ambiguous(self, part: Part) -> None:
        await self._database.write(sql.outbox_ambiguous(id=part.id))

    async def bury(self, part: Part, reason: str, detail: str) -> None:
        """It will not be sent; a dead letter says why."""
        letter = sql.bury_part_letter(
            id=part.id,
            ref=str(part.id),
            session_key=part.session_key,
            reason=reason,
            detail=detail,
            payload=orjson.dumps({"text": part.text, "media": part.media}).decode(),
            attempts=part.attempts + 1,
            now=now_ms(),
        )
        await self._database.write(sql.bury_part(id=part.id, reason=reason), letter)

    async def waiting_destinations(self, *, after: str, older_than_ms: int, limit: int) -> Sequence[tuple[str, int]]:
        """Destinations that have waited for that long, each with its first row, from `after` on."""
        before = now_ms() - older_than_ms
        [rows] = await self._database.read(sql.outbox_destinations(after=after, before=before, limit=limit))
        return [(row["destination"], row["first"]) for row in rows]

    async def of_turn(self, turn_id: str) -> list[Row]:
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
    payload = orjson.loads(row["payload"])
    return Part(
        id=row["id"],
        idempotency_key=row["idempotency_key"],
        session_key=row["session_key"],
        source=decode_source(payload["source"]),
        in_reply_to=tuple(payload["in_reply_to"]),
        part=payload["part"],
        parts=payload["parts"],
        text=payload["text"],
        media=decode_media(payload["media"]),
        attempts=row["attempts"],
        waits=row["waits"],
        answers=payload.get("answers"),
        sending=row["state"] == "sending",
        sending_for=timedelta(milliseconds=row.get("sending_ms") or 0),
        elsewhere=decode_address(payload.get("to")),
        edits=payload.get("edits"),
    )
