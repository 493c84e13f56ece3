"""The outbox: replies decided but not yet known to be delivered.

pending -> sending (written before the call) -> sent, or back to pending, or buried. A row found in `sending` by somebody
else was interrupted: whether it arrived is unknown, and it is flagged `ambiguous`.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from shared.clock import now_ms
from shared.codec import decode_media, decode_source
from shared.messages import Part
from shared.store.database import Database, Row, step


class Outbox:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def open_parts(self, destination: str, limit: int) -> list[Part]:
        """What this destination still waits for, in order."""
        [rows] = await self._database.read(step("outbox_of", destination=destination, limit=limit))
        return [_part(row) for row in rows]

    async def take(self, destination: str) -> Part | None:
        """The first of them as it was, and write down that an attempt at it begins. None: there is none, or its last attempt came to
        no end, which is to be looked at before it is sent again."""
        [rows] = await self._database.write(step("outbox_take", destination=destination, now=now_ms()))
        return _part(rows[0]) if rows else None

    async def sending(self, part: Part) -> bool:
        """Write down that an attempt at a part that was looked at begins. False: another one began, or it is sent already."""
        [rows] = await self._database.write(step("outbox_sending", id=part.id, attempts=part.attempts, now=now_ms()))
        return bool(rows)

    async def sent(self, part: Part, receipt: str) -> None:
        await self._database.write(step("outbox_sent", id=part.id, receipt=receipt, now=now_ms()), may_wait=True)

    async def failed(self, part: Part, reason: str) -> None:
        """It stays to be sent again."""
        await self._database.write(step("outbox_failed", id=part.id, state="pending", reason=reason))

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
        """The parts of a session that came after a given one: for those who follow it."""
        [rows] = await self._database.read(step("outbox_of_session", session_key=session_key, after=after, limit=limit))
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
        answers=payload.get("answers"),
        sending=row["state"] == "sending",
    )
