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
from typing import Any

import orjson

from shared.clock import now_ms
from shared.codec import decode_media, decode_source
from shared.messages import Part
from shared.store.database import Database, Row, Step, step

OPEN_SECONDS = 35.0  # a transaction of ours ends within its statement timeout of 30 s
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.5  # between looks at who still writes
_LAST = 2**63 - 1


class Outbox:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def open_parts(self, destination: str, limit: int) -> list[Part]:
        """What this destination still waits for, in order."""
        [rows] = await self._database.read(step("outbox_of", destination=destination, limit=limit))
        return [_part(row) for row in rows]

    async def take(self, destination: str, lease: str) -> Part | None:
        """The first of them as it was, and write down that an attempt at it begins. None: there is none, or its last attempt came to
        no end, which is to be looked at before it is sent again."""
        [rows] = await self._database.write(step("outbox_take", destination=destination, lease=lease))
        return _part(rows[0]) if rows else None

    async def sending(self, part: Part, lease: str) -> bool:
        """Write down that an attempt at a part that was looked at begins. False: another one began, or it is sent already."""
        begun = step("outbox_sending", id=part.id, attempts=part.attempts, lease=lease)
        [rows] = await self._database.write(begun)
        return bool(rows)

    async def sent(self, part: Part, receipt: str) -> None:
        await self._database.write(step("outbox_sent", id=part.id, receipt=receipt), may_wait=True)

    async def failed(self, part: Part, reason: str, *, asked_to_wait: bool = False) -> None:
        """It stays to be sent again. An attempt that the platform answered with a request to wait is not counted."""
        about = {"id": part.id, "attempt": part.attempts + 1, "waits": int(asked_to_wait)}
        await self._database.write(step("outbox_failed", reason=reason, **about))

    async def ambiguous(self, part: Part) -> None:
        await self._database.write(step("outbox_ambiguous", id=part.id))

    async def bury(self, part: Part, reason: str, detail: str) -> None:
        """It will not be sent; a dead letter says why."""
        about = {"id": part.id, "reason": reason}
        letter = {"ref": str(part.id), "session_key": part.session_key, "detail": detail, "attempts": part.attempts + 1}
        payload = orjson.dumps({"text": part.text, "media": part.media}).decode()
        await self._database.write(
            step("bury_part", **about), step("bury_part_letter", payload=payload, now=now_ms(), **letter, **about)
        )

    async def waiting_destinations(self, *, after: str, older_than_ms: int, limit: int) -> Sequence[tuple[str, int]]:
        """Destinations that have waited for that long, each with its first row, from `after` on."""
        before = now_ms() - older_than_ms
        [rows] = await self._database.read(step("outbox_destinations", after=after, before=before, limit=limit))
        return [(row["destination"], row["first"]) for row in rows]

    async def of_turn(self, turn_id: str) -> list[Row]:
        [rows] = await self._database.read(step("outbox_of_turn", turn_id=turn_id))
        return rows

    async def of_session(self, session_key: str, *, after: int, limit: int = 100) -> list[Row]:
        """The parts of a session that came after a given one, for those who follow it: none with a lower number than these
        is committed later. May be cancelled at any time, at the cost of no connection."""
        about = {"session_key": session_key, "after": after, "limit": limit}
        if self._database.dialect == "postgres":
            return await self._settled(about)
        return await self._read_to_the_end(step("outbox_of_session", **about))

    async def _settled(self, about: dict[str, Any]) -> list[Row]:
        """PostgreSQL numbers rows before their transaction commits, so a lower number may come to light after a higher one.
        A transaction that could hold one was open when the higher one was read: when no writer of the outbox from then is
        left, a second look shows all."""
        rows = await self._read_to_the_end(step("outbox_of_session_postgres", until=_LAST, **about))
        if not rows or rows[0]["settled"]:
            return rows
        await self._writers_end()
        return await self._read_to_the_end(step("outbox_of_session_postgres", until=rows[-1]["id"], **about))

    async def _writers_end(self) -> None:
        """Wait until the present writers of the outbox have ended, but no longer than a transaction of ours can last."""
        writers, until, pause = await self._writers(), time.monotonic() + OPEN_SECONDS, FIRST_PAUSE_SECONDS
        while writers and time.monotonic() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            writers &= await self._writers()

    async def _writers(self) -> set[str]:
        return {row["writer"] for row in await self._read_to_the_end(step("outbox_writers_postgres"))}

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
    )
