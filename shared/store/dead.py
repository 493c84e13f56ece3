"""Dead letters: what was set aside, with its reason, until somebody replays or drops it.

The same thing set aside again, by a replay or a redelivery, is recorded once, even after its letter was dropped.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b

import orjson

from shared.clock import now_ms
from shared.codec import storable
from shared.mail import encode_mail
from shared.messages import Inbound, Mail, Reply
from shared.store.commits import parts_of
from shared.store.database import Database, Row, Step, step
from shared.value import value

PAYLOAD_LIMIT = 4096  # characters kept of something that could not be understood
FULL = "mailbox full"
TELL_AGAIN = timedelta(hours=1)  # after the last message of a chat that was refused: then it is told again


@value
class Told:
    """The part that tells a chat, and where it goes."""

    destination: str
    part_id: int


class DeadLetters:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def set_aside(
        self, kind: str, ref: str, session_key: str | None, reason: str, detail: str, payload: str
    ) -> bool:
        """Record something that cannot be processed. Text only, and not much of it. False: it was there before."""
        digest = blake2b(orjson.dumps([ref, session_key, storable(payload)]), digest_size=16).hexdigest()
        about = {"kind": kind, "ref": ref, "session_key": session_key, "reason": reason}
        [rows] = await self._database.write(_letter(f"{kind}:{digest}", payload[:PAYLOAD_LIMIT], detail, **about))
        return bool(rows)

    async def refuse(self, inbound: Inbound, session_key: str, notice: str) -> Told | None:
        """Set an inbound aside that its key has no room for, whole, so that it can be replayed; and tell the chat, unless
        it was told of another one not long ago. Both or neither. Gives the part that is to be sent, if there is one."""
        now, mail = now_ms(), Mail(0, _without_names(inbound))
        keyed = {"turn_id": f"full_{inbound.id}", "session_key": session_key, "now": now}
        destination, [part] = parts_of([mail], [Reply(notice)], keyed)
        since = now - int(TELL_AGAIN.total_seconds() * 1000)
        about = {"kind": "inbound", "ref": inbound.id, "session_key": session_key, "reason": FULL}
        told, _ = await self._database.write(
            step("refuse_notice", reason=FULL, since=since, **part),
            _letter(f"{FULL}:{inbound.id}", encode_mail(inbound).decode(), "too many messages wait", **about),
        )
        return Told(destination, told[0]["id"]) if told else None

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


def _letter(once: str, payload: str, detail: str, **about: str | None) -> Step:
    kept = {"detail": storable(detail), "payload": storable(payload), "attempts": 0, "now": now_ms()}
    return step("set_aside", once=once, **kept, **about)


def _without_names(inbound: Inbound) -> Inbound:
    """The part outlives its conversation: it holds no more than is needed to send it."""
    return replace(inbound, source=replace(inbound.source, chat_name=None, user_name=None, topic=None))
