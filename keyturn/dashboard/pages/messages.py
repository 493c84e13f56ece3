"""Messages: one message's way through all stages."""

from __future__ import annotations

from starlette.responses import Response

from keyturn.dashboard.desk import Desk, Visit
from keyturn.dashboard.render import link
from shared.operating.messages import drop_message
from shared.reading.trace import Trace, find_message, keys_ahead
from shared.value import value


@value
class Bar:
    """A stage on the timeline: where it begins and how long it took, in thousandths of the whole."""

    x: int
    width: int


async def show(desk: Desk, visit: Visit) -> Response:
    id = visit.asked("id").strip()
    if not id:
        return desk.page("messages.html", visit, id="", trace=None, ahead=(), bars=[])
    trace = await find_message(desk.pipe, id)
    ahead = await keys_ahead(desk.pipe, trace)
    return desk.page("messages.html", visit, id=id, trace=trace, ahead=ahead, bars=bars(trace))


async def drop(desk: Desk, visit: Visit) -> Response:
    id = visit.form.one("id")
    tell = visit.form.one("tell") == "yes"
    dropped = await desk.act(visit, "drop message", id, lambda: drop_message(desk.pipe, id, tell=tell))
    told = " Its chat is told." if dropped.told else ""
    return desk.done(visit, f"The message was dropped.{told} {dropped.note}".strip(), link("/messages", id=dropped.id))


def bars(trace: Trace) -> list[Bar]:
    """One bar for each stage that was passed: it reaches from the stage before to this one."""
    if not trace.stages:
        return []
    begin = trace.stages[0].at
    whole = max(0.001, (trace.stages[-1].at - begin).total_seconds())
    found: list[Bar] = []
    for passed in trace.stages:
        end = int((passed.at - begin).total_seconds() / whole * 1000)
        length = int((passed.ms or 0) / 1000 / whole * 1000)
        found.append(Bar(max(0, min(996, end - length)), max(4, min(1000, length))))
    return found
