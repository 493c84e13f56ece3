"""One person: what is kept of them, counted; all of it as a file; and forgetting it. For admins."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from keyturn.dashboard.desk import Desk, Visit
from keyturn.dashboard.forgetting import RunningForgetting
from shared.errors import CannotDo, Malformed, NotFound
from shared.operating.forgetting import ForgottenPerson, Tell, forget_person
from shared.person import Person
from shared.platforms import PLATFORMS
from shared.reading.person import export_person, kept_of_person

PAGE = "/people"


async def show(desk: Desk, visit: Visit) -> Response:
    return desk.page("people.html", visit, connected=desk.pipe.settings.connected, platforms=list(PLATFORMS))


async def look(desk: Desk, visit: Visit) -> Response:
    """The dry run: what is kept of a person, counted. Changes nothing."""
    person = _person(visit)
    # In none of these rows the audit log names the person: it must not know them when they are forgotten.
    kept = await desk.act(visit, "count person", person.platform, lambda: kept_of_person(desk.pipe.store, person))
    return desk.page("person.html", visit, here=PAGE, person=person, name=_name(person), kept=kept)


async def export(desk: Desk, visit: Visit) -> Response:
    """All that is kept of a person as JSON lines, as `keyturn sessions export --user` writes it."""
    person, lines = (found := _person(visit)), export_person(desk.pipe.store, found)
    first = await desk.act(visit, "export person", person.platform, lambda: anext(lines))

    async def written() -> AsyncIterator[bytes]:
        yield first + b"\n"
        async for line in lines:
            yield line + b"\n"

    headers = {"content-disposition": 'attachment; filename="person.jsonl"'}
    return StreamingResponse(written(), media_type="application/x-ndjson", headers=headers)


async def forget(desk: Desk, visit: Visit) -> Response:
    """Begin to forget a person whose name was typed once more."""
    person = _person(visit)
    if visit.form.one("typed").strip() != _name(person):
        raise CannotDo(f"nothing was done: to confirm, type {_name(person)} exactly")

    async def work(tell: Tell) -> ForgottenPerson:
        return await desk.act(visit, "forget person", person.platform, lambda: forget_person(desk.pipe, person, tell))

    return await _progress(desk, visit, desk.forgettings.begin(person, work))


async def follow(desk: Desk, visit: Visit) -> Response:
    """How far the forgetting of a person has come, or what came of it."""
    running = desk.forgettings.find(visit.form.one("run"))
    if running is None:
        raise NotFound(
            "this process knows nothing of it: the audit log says whether it was done; doing it again finishes it"
        )
    return await _progress(desk, visit, running)


async def _progress(desk: Desk, visit: Visit, running: RunningForgetting) -> Response:
    name = _name(running.person)
    if not await running.wait():
        values = {"run": running.id, "progress": running.progress, "name": name}
        return desk.page("person_progress.html", visit, here=PAGE, **values)
    return desk.page("person_forgotten.html", visit, here=PAGE, name=name, done=running.task.result())


def _person(visit: Visit) -> Person:
    try:
        person = Person.parse(visit.form.one("person").strip())
    except Malformed as error:
        raise CannotDo(str(error)) from None
    if person.platform not in PLATFORMS:
        raise CannotDo(f"there is no platform {person.platform:.40}: choose from {', '.join(PLATFORMS)}")
    return person


def _name(person: Person) -> str:
    """The person as they are written in commands and forms."""
    return f"{person.platform}:{person.id}"
