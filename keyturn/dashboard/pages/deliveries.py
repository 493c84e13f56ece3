"""Deliveries: reply parts that wait, and those with a decision to take."""

from __future__ import annotations

from starlette.responses import Response

from keyturn.dashboard.desk import ROWS, Desk, Visit
from shared.reading.deliveries import NEWEST, flagged_parts, waiting_parts


async def show(desk: Desk, visit: Visit) -> Response:
    which = "flagged" if visit.asked("show") == "flagged" else "waiting"
    if which == "flagged":
        parts = await flagged_parts(desk.pipe.store, ROWS + 1, visit.number("before", NEWEST))
    else:
        parts = await waiting_parts(desk.pipe.store, ROWS + 1, (visit.asked("after"), visit.number("id", 0)))
    more = parts[ROWS - 1] if len(parts) > ROWS else None
    return desk.page("deliveries.html", visit, which=which, sent=parts[:ROWS], more=more)
