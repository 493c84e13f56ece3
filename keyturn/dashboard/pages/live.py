"""The overview as server-sent events: what changed is sent as the same HTML that the page has, every one or two seconds.

A reader that hears nothing for longer than the page promises shows that it is stale. Ends with the session and with the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import orjson
from starlette.responses import Response, StreamingResponse

from keyturn.dashboard.desk import Desk, Visit, rights
from keyturn.dashboard.guard import Refused
from keyturn.dashboard.pages.overview import numbers
from keyturn.dashboard.render import render

EVERY_SECONDS = 1.5
MOST = 100  # streams at a time
HEADERS = {"x-accel-buffering": "no"}  # a proxy passes events on at once


async def follow(desk: Desk, visit: Visit) -> Response:
    if desk.followers >= MOST:
        raise Refused(503, "too many pages are open")
    events = _events(desk, visit, visit.request.app.state.stopping)
    return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)


async def _events(desk: Desk, visit: Visit, stopping: asyncio.Event) -> AsyncGenerator[bytes]:
    desk.followers += 1
    known = {"login": visit.login, "may": rights(visit.login), "here": "/"}
    try:
        while not stopping.is_set() and desk.logins.find(visit.login.secret) is not None:
            _, seen = await asyncio.gather(desk.watch.look_at_pauses(), desk.watch.look())  # each may wait for a store
            values = {**numbers(seen, desk), **known}
            html = render("pause_banner.html", values) + render("overview_live.html", values)
            yield b"event: overview\ndata: " + orjson.dumps({"html": html}) + b"\n\n"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_SECONDS):
                    await stopping.wait()
    finally:
        desk.followers -= 1
