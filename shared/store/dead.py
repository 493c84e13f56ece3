"""Dead letters: what was set aside, with its reason, until somebody replays or drops it."""

from __future__ import annotations

from shared.clock import now_ms
from shared.codec import storable
from shared.store.database import Database, Row, step

PAYLOAD_LIMIT = 4096  # characters kept of something that could not be understood


class DeadLetters:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def set_aside(
        self, kind: str, ref: str, session_key: str | None, reason: str, detail: str, payload: str
    ) -> None:
        """Record something that cannot be processed. Text only, and not much of it."""
        await self._database.write(
            step(
                "set_aside",
                kind=kind,
                ref=ref,
                session_key=session_key,
                reason=reason,
                detail=storable(detail),
                payload=storable(payload[:PAYLOAD_LIMIT]),
                attempts=0,
                now=now_ms(),
            )
        )

    async def all(self, *, state: str, limit: int) -> list[Row]:
        [rows] = await self._database.read(step("dead_list", state=state, limit=limit))
        return rows

    async def find(self, id: int) -> Row | None:
        [rows] = await self._database.read(step("dead_by_id", id=id))
        return rows[0] if rows else None

    async def close(self, id: int, state: str) -> bool:
        """Mark as replayed or dropped. False: somebody did before."""
        [rows] = await self._database.write(step("dead_close", id=id, state=state))
        return bool(rows)

    async def send_again(self, id: int, part_id: int) -> tuple[bool, str | None]:
        """Replay a buried reply. Gives whether the letter was open, and the destination that now waits for the part, if any."""
        moved, parts, _ = await self._database.write(
            step("dead_move", id=id, before="open", after="replaying"),  # seen by nobody else, and locks the letter
            step("outbox_again", id=part_id, dead_id=id),
            step("dead_move", id=id, before="replaying", after="replayed"),
        )
        return bool(moved), parts[0]["destination"] if parts else None
