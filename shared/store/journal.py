"""The journal: every accepted inbound, numbered per key. What is here survives the loss of Redis."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

from shared.clock import now_ms
from shared.errors import AlreadyDone, MailboxFull
from shared.messages import Inbound
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.value import value

END_OF_TIME_MS = 2**63 - 1  # the largest number that both databases keep


@value
class Accepted:
    """Where the journal has an inbound. Not fresh: it was there before, perhaps already answered."""

    seq: int
    session_key: str
    state: str
    fresh: bool
    payload: str = ""  # what was accepted then, where it is not fresh; empty where it was deleted


@value
class Pending:
    """A journaled inbound that has not ended."""

    id: str
    seq: int
    payload: str
    attempts: int
    outage_ms: int | None  # how long its provider has been away, by the database's clock
    received_at: int  # wall clock of its receiver, ms


class JournalSql(Protocol):
    """The statements of journal.sql, with the values that each needs."""

    def accept_route(self, *, id: str, session_key: str, session_id: str, mailbox_limit: int, now: int) -> Step: ...
    def accept_inbox(
        self, *, id: str, event_id: str, platform: str, session_key: str, payload: str, now: int
    ) -> Step: ...
    def accepted_before(self, *, id: str) -> Step: ...
    def inbox_by_id(self, *, id: str) -> Step: ...
    def inbox_by_event(self, *, event_id: str) -> Step: ...
    def route_by_key(self, *, session_key: str) -> Step: ...
    def pending_of_key(self, *, session_key: str, after: int, limit: int) -> Step: ...
    def pending_keys(self, *, after: str, before: int, limit: int) -> Step: ...
    def count_attempt(self, *, id: str, attempts: int, reason: str) -> Step: ...
    def note_outage(self, *, id: str, away_ms: int, reason: str) -> Step: ...


sql = declared(JournalSql)


class Journal:
    """The accepted inbounds. One that `accept` returned for is numbered and on disk; accepting it again changes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def accept(self, inbound: Inbound, payload: bytes, session_key: str, mailbox_limit: int) -> Accepted:
        """Write the inbound down, once, with its key's next number. Durable when this returns."""
        seq = await self._number(inbound, payload, session_key, mailbox_limit)
        if seq is not None:
            return Accepted(seq, session_key, "pending", fresh=True)
        [found] = await self._database.read(sql.accepted_before(id=inbound.id))
        if not found:
            raise MailboxFull(session_key)
        known = found[0]
        key = known["session_key"] or session_key  # retention removes the key of a row that it empties
        return Accepted(known["seq"], key, known["state"], fresh=False, payload=known["payload"])

    async def _number(self, inbound: Inbound, payload: bytes, session_key: str, mailbox_limit: int) -> int | None:
        """The number under which it was journaled just now; None when it was before, or too much is waiting."""
        number = sql.accept_route(
            id=inbound.id,
            session_key=session_key,
            session_id=first_session_id(session_key),
            mailbox_limit=mailbox_limit,
            now=inbound.received_at,
        )
        insert = sql.accept_inbox(
            id=inbound.id,
            event_id=inbound.event_id,
            platform=inbound.source.platform,
            session_key=session_key,
            payload=payload.decode(),
            now=inbound.received_at,
        )
        try:
            _, numbered = await self._database.write(number, insert)
        except AlreadyDone:  # the same event came in elsewhere at the same moment, and the number was taken back
            return None
        return numbered[0]["id"] if numbered else None

    async def find(self, id: str) -> Row | None:
        [rows] = await self._database.read(sql.inbox_by_id(id=id))
        return rows[0] if rows else None

    async def of_event(self, event_id: str) -> list[Row]:
        """The inbounds of an event id, newest first: different platforms may use the same. Slow where the journal is long."""
        [rows] = await self._database.read(sql.inbox_by_event(event_id=event_id))
        return rows

    async def route(self, session_key: str) -> Row | None:
        """How far a key's mail has come. None: it never had any."""
        [rows] = await self._database.read(sql.route_by_key(session_key=session_key))
        return rows[0] if rows else None

    async def pending(self, session_key: str, *, after: int, limit: int) -> list[Pending]:
        """The waiting inbounds of a key in the order that counts."""
        [rows] = await self._database.read(sql.pending_of_key(session_key=session_key, after=after, limit=limit))
        return [Pending(**row) for row in rows]

    async def waiting_keys(self, *, after: str, limit: int, older_than_ms: int | None = None) -> Sequence[str]:
        """Keys that wait, in order, from `after` on. With `older_than_ms`, only those that have waited for that long."""
        before = now_ms() - older_than_ms if older_than_ms is not None else END_OF_TIME_MS
        [rows] = await self._database.read(sql.pending_keys(after=after, before=before, limit=limit))
        return [row["session_key"] for row in rows]

    async def count_attempt(self, id: str, attempts: int, reason: str) -> None:
        """Remember a failed attempt where a loss of Redis cannot forget it."""
        await self._database.write(sql.count_attempt(id=id, attempts=attempts, reason=reason))

    async def note_outage(self, id: str, away_ms: int, reason: str) -> None:
        """Remember since when a message waits for its provider, where a loss of Redis cannot forget it. What was
        remembered first counts."""
        await self._database.write(sql.note_outage(id=id, away_ms=away_ms, reason=reason))


def first_session_id(session_key: str) -> str:
    """A key's first session has an id that follows from the key, so that two workers cannot open two."""
    return f"ses_{blake2b(session_key.encode(), digest_size=15).hexdigest()}"
