"""The audit log: who did what, when, and how it ended."""

from __future__ import annotations

from starlette.responses import Response

from keyturn.dashboard.desk import ROWS, Desk, Visit
from shared.reading.audit import NEWEST, audit_log


async def show(desk: Desk, visit: Visit) -> Response:
    rows = await audit_log(desk.pipe.store, ROWS + 1, visit.number("before", NEWEST))
    more = rows[ROWS - 1].id if len(rows) > ROWS else None
    return desk.page("audit.html", visit, rows=rows[:ROWS], more=more)
