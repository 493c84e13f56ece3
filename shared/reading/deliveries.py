"""Reply parts as operators look for them: those that wait, and those with a decision to take."""

from __future__ import annotations

from datetime import datetime

from shared.clock import moment
from shared.store import Store
from shared.store.database import Row
from shared.value import value

NEWEST = 2**62


@value
class DeliveryPart:
    """One part of a reply on its way. Ambiguous: of an earlier attempt nobody knows whether it arrived."""

    id: int
    destination: str
    session_key: str
    platform: str
    state: str
    attempts: int
    ambiguous: bool
    receipt: str | None
    reason: str | None
    created_at: datetime
    sending_at: datetime | None
    sent_at: datetime | None


async def waiting_parts(store: Store, limit: int, after: tuple[str, int] = ("", 0)) -> list[DeliveryPart]:
    """Parts that are not sent yet, by destination and in order, after a destination and a number."""
    return [part_of_row(row) for row in await store.overview.open_parts(after, limit)]


async def flagged_parts(store: Store, limit: int, before: int = NEWEST) -> list[DeliveryPart]:
    """Ambiguous and buried parts before a number, the newest first."""
    return [part_of_row(row) for row in await store.overview.flagged_parts(before, limit)]


async def parts_of_conversation(store: Store, session_key: str, limit: int) -> list[DeliveryPart]:
    """The newest parts of a conversation, the newest first."""
    return [part_of_row(row) for row in await store.overview.parts_of(session_key, limit)]


def part_of_row(row: Row) -> DeliveryPart:
    """The part that a row of the overview shows."""
    sending_at, sent_at = (moment(at) if (at := row[name]) is not None else None for name in ("sending_at", "sent_at"))
    return DeliveryPart(
        id=row["id"],
        destination=row["destination"],
        session_key=row["session_key"],
        platform=row["platform"],
        state=row["state"],
        attempts=row["attempts"],
        ambiguous=bool(row["ambiguous"]),
        receipt=row["receipt"],
        reason=row["reason"],
        created_at=moment(row["created_at"]),
        sending_at=sending_at,
        sent_at=sent_at,
    )
