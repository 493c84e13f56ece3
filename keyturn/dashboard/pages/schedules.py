"""Schedules: what runs by the clock, what became of it, and changing that."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from keyturn.dashboard.desk import ROWS, Desk, Visit
from keyturn.dashboard.render import link
from shared.errors import CannotDo, Malformed
from shared.ids import fresh_id
from shared.operating.schedules import (
    TEXT_LIMIT,
    WantedSchedule,
    add_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
)
from shared.reading.schedules import SchedulePage, one_schedule, schedule_page
from shared.schedules.schedule import Missed, Overlap, ScheduleState
from shared.targets import TargetKind

PAGE = "/schedules"
SLOTS = 20
FIELDS = ("when", "text", "to", "name", "missed", "overlap", "window")
EMPTY = {**dict.fromkeys(FIELDS, ""), "to": TargetKind.FILE.value, "missed": Missed.LAST, "overlap": Overlap.SKIP}


async def show(desk: Desk, visit: Visit) -> Response:
    asked = visit.asked("state")
    state = ScheduleState(asked) if asked in list(ScheduleState) else None
    after = (visit.number("after", 0), visit.asked("id"))
    found = await schedule_page(desk.pipe.store, state, ROWS, after)
    return desk.page("schedules.html", visit, **_listed(desk, found, state), written=EMPTY, wrong="", once=fresh_id())


async def add(desk: Desk, visit: Visit) -> Response:
    """A new schedule, with the same checks as the command makes; or the form again, with what is wrong."""
    written = {name: visit.form.one(name).replace("\r\n", "\n") for name in FIELDS}
    once = visit.form.one("once")
    try:
        wanted = _wanted(written)
        added = await desk.act(
            visit,
            "add schedule",
            wanted.name or "without a name",
            lambda: add_schedule(desk.pipe, wanted, key=f"dashboard {once}" if once else None),
        )
    except (CannotDo, Malformed) as error:
        found = await schedule_page(desk.pipe.store, None, ROWS, (0, ""))
        values = {"written": written, "wrong": str(error), "once": once}
        return desk.answer("schedules.html", visit, 409, here=PAGE, **_listed(desk, found, None), **values)
    return desk.done(visit, f"The schedule is kept. It runs {added.when}.", link("/schedule", id=added.id))


async def show_one(desk: Desk, visit: Visit) -> Response:
    return await _page(desk, visit, visit.asked("id"), with_text=False)


async def read(desk: Desk, visit: Visit) -> Response:
    """The same page with what the agent is asked. Each showing is in the audit log."""
    id = visit.form.one("id")
    return await desk.act(visit, "read schedule", id, lambda: _page(desk, visit, id, with_text=True))


async def _page(desk: Desk, visit: Visit, id: str, *, with_text: bool) -> Response:
    found = await one_schedule(desk.pipe.store, id, SLOTS)
    values = {"schedule": found.schedule, "slots": found.slots, "with_text": with_text}
    return desk.page("schedule.html", visit, here=link("/schedule", id=id), **values)


async def pause(desk: Desk, visit: Visit) -> Response:
    id = visit.form.one("id")
    await desk.act(visit, "pause schedule", id, lambda: pause_schedule(desk.pipe.store, id))
    return desk.done(visit, "The schedule is paused: no slot runs until it is resumed.", link("/schedule", id=id))


async def resume(desk: Desk, visit: Visit) -> Response:
    id = visit.form.one("id")
    resumed = await desk.act(visit, "resume schedule", id, lambda: resume_schedule(desk.pipe.store, id))
    text = f"The schedule goes on at {resumed.next[0]:%Y-%m-%d %H:%M:%S} UTC."
    return desk.done(visit, text, link("/schedule", id=id))


async def run(desk: Desk, visit: Visit) -> Response:
    id = visit.form.one("id")
    begun = await desk.act(visit, "run schedule", id, lambda: run_schedule(desk.pipe, id))
    return desk.done(visit, "It runs now, beside its own slots. This is its message.", link("/messages", id=begun.id))


async def confirm_remove(desk: Desk, visit: Visit) -> Response:
    """Says what will be gone. Changes nothing."""
    return desk.page("schedule_remove.html", visit, here=PAGE, id=visit.form.one("id"))


async def remove(desk: Desk, visit: Visit) -> Response:
    id = visit.form.one("id")
    await desk.act(visit, "remove schedule", id, lambda: remove_schedule(desk.pipe.store, id))
    return desk.done(visit, "The schedule and the record of its slots are gone.", PAGE)


def _listed(desk: Desk, found: SchedulePage, state: ScheduleState | None) -> dict[str, Any]:
    """What the list shows, and what its form offers."""
    return {
        "found": found,
        "state": state,
        "states": list(ScheduleState),
        "missed": list(Missed),
        "overlap": list(Overlap),
        "limit": TEXT_LIMIT,
        "connected": desk.pipe.settings.connected,
        "zone": desk.pipe.settings.timezone,
    }


def _wanted(written: dict[str, str]) -> WantedSchedule:
    window = written["window"].strip()
    if window and not (window.isascii() and window.isdigit() and len(window) < 10):
        raise CannotDo("the window is a whole number of seconds")
    return WantedSchedule(
        written["when"].strip(),
        written["text"],
        tuple(line.strip() for line in written["to"].replace(",", "\n").split("\n") if line.strip()),
        written["name"].strip(),
        written["missed"] or Missed.LAST.value,
        written["overlap"] or Overlap.SKIP.value,
        float(window) if window else None,
    )
