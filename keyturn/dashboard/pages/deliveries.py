"""Deliveries: reply parts that wait, and those with a decision to take."""

from __future__ import annotations

from starlette.responses import Response

from keyturn.dashboard.desk import ROWS, Desk, Visit
from keyturn.dashboard.render import link
from shared.operating.deliveries import drop_parts, release_destination
from shared.reading.deliveries import NEWEST, flagged_parts, waiting_parts


async def show(desk: Desk, visit: Visit) -> Response:
    which = "flagged" if visit.asked("show") == "flagged" else "waiting"
    if which == "flagged":
        parts = await flagged_parts(desk.pipe.store, ROWS + 1, visit.number("before", NEWEST))
    else:
        parts = await waiting_parts(desk.pipe.store, ROWS + 1, (visit.asked("after"), visit.number("id", 0)))
    more = parts[ROWS - 1] if len(parts) > ROWS else None
    return desk.page("deliveries.html", visit, which=which, sent=parts[:ROWS], more=more)


async def release(desk: Desk, visit: Visit) -> Response:
    to, buried = visit.form.one("to"), visit.form.one("buried") == "yes"
    released = await desk.act(visit, "release chat", to, lambda: release_destination(desk.pipe, to, buried=buried))
    opened = " The chat was closed and is open now." if released.was_closed else ""
    text = f"Replies that go on: {released.waiting}; sent again: {released.sent_again}.{opened}"
    return desk.done(visit, text, link("/conversation", key=to))


async def drop(desk: Desk, visit: Visit) -> Response:
    to = visit.form.one("to")
    dropped = await desk.act(visit, "drop replies", to, lambda: drop_parts(desk.pipe, to))
    left = f" Being sent, and left: {dropped.being_sent}." if dropped.being_sent else ""
    text = f"Replies given up: {len(dropped.dropped)}; dead letters closed: {len(dropped.letters)}.{left}"
    return desk.done(visit, text, link("/conversation", key=to))
