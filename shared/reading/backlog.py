"""How much waits in the database, and since when."""

from __future__ import annotations

from datetime import datetime

from shared.clock import moment
from shared.store import Store
from shared.value import value


@value
class WaitingRows:
    """Rows that have not ended yet, and the time of the oldest."""

    count: int
    oldest: datetime | None


@value
class Backlog:
    """Messages without an answer, reply parts that are not sent, and dead letters that nobody has dealt with."""

    messages: WaitingRows
    replies: WaitingRows
    dead_letters: int


async def backlog(store: Store) -> Backlog:
    """Counted by the database when it is asked."""
    row = await store.backlog()
    inbound, outbox = (
        WaitingRows(row[f"{what}_waiting"], moment(oldest) if (oldest := row[f"{what}_oldest"]) is not None else None)
        for what in ("inbound", "outbox")
    )
    return Backlog(inbound, outbox, row["dead_open"])
