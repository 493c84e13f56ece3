"""Usage: what answers have cost, by day, user, agent or model."""

from __future__ import annotations

from starlette.responses import Response

from keyturn.dashboard.desk import ROWS, Desk, Visit
from shared.reading.usage import UsageGroup
from shared.reading.usage import usage as read_usage

PERIODS = (1, 7, 30, 365)


async def show(desk: Desk, visit: Visit) -> Response:
    asked = visit.asked("by")
    group = UsageGroup(asked) if asked in list(UsageGroup) else UsageGroup.DAY
    days = visit.number("days", 30)
    days = days if days in PERIODS else 30
    lines = await read_usage(desk.pipe.store, group, ROWS, days)
    most = max((line.spent.total for line in lines), default=0)
    values = {
        "group": group,
        "groups": list(UsageGroup),
        "days": days,
        "periods": PERIODS,
        "lines": lines,
        "most": most,
    }
    return desk.page("usage.html", visit, **values)
