"""The audit log: who did what, when, and how it ended."""

from __future__ import annotations

from datetime import datetime

from shared.clock import moment
from shared.store import Store
from shared.value import value

NEWEST = 2**62


@value
class AuditRow:
    """One action of an operator. `begun`: it runs now, or its process ended meanwhile."""

    id: int
    at: datetime
    who: str
    role: str
    action: str
    target: str
    outcome: str


async def audit_log(store: Store, limit: int, before: int = NEWEST) -> list[AuditRow]:
    """Actions before a number, the newest first."""
    rows = await store.audit.page(before, limit)
    return [
        AuditRow(
            id=row["id"],
            at=moment(row["at"]),
            who=row["who"],
            role=row["role"],
            action=row["action"],
            target=row["target"],
            outcome=row["outcome"],
        )
        for row in rows
    ]
