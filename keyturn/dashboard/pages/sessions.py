"""Sessions: searched, read, exported and deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from keyturn.dashboard.access import Role
from keyturn.dashboard.desk import ROWS, Desk, Visit
from keyturn.dashboard.guard import check_role
from keyturn.dashboard.render import link
from shared.errors import CannotDo
from shared.operating.sessions import delete_session
from shared.reading.export import export_session, json_line
from shared.reading.sessions import (
    NEWEST,
    Scope,
    SearchResult,
    StoredSession,
    last_rows,
    page_place,
    session,
    session_page,
)
from shared.reading.sessions import search as search_words

TRANSCRIPT_ROWS = 200


async def search(desk: Desk, visit: Visit) -> Response:
    words, store = visit.asked("q").strip(), desk.pipe.store
    found, listed, wrong = SearchResult((), True), list[StoredSession](), ""
    if words:
        check_role(visit.login, Role.OPERATE)  # what is found says what was said
        try:
            found = await search_words(store, words, Scope(), ROWS)
        except CannotDo as error:
            wrong = str(error)
    else:
        before = (visit.number("before", NEWEST[0]), visit.asked("id"))
        listed = await session_page(store, ROWS + 1, before)
    more = page_place(listed[ROWS - 1]) if len(listed) > ROWS else None
    values = {"words": words, "wrong": wrong, "found": found, "listed": listed[:ROWS], "more": more}
    return desk.page("sessions.html", visit, **values)


async def show(desk: Desk, visit: Visit) -> Response:
    return await _page(desk, visit, visit.asked("id"), with_text=False)


async def read(desk: Desk, visit: Visit) -> Response:
    """The same page with what was said. Each showing is in the audit log."""
    id = visit.form.one("id")
    return await desk.act(visit, "read session", id, lambda: _page(desk, visit, id, with_text=True))


async def _page(desk: Desk, visit: Visit, id: str, *, with_text: bool) -> Response:
    stored = await session(desk.pipe.store, id)
    rows = await last_rows(desk.pipe.store, stored.id, TRANSCRIPT_ROWS)
    return desk.page("session.html", visit, here=_link(stored), stored=stored, rows=rows, with_text=with_text)


async def export(desk: Desk, visit: Visit) -> Response:
    """The session as JSON lines, as `keyturn sessions export` writes it."""
    id = visit.form.one("id")
    stored = await desk.act(visit, "export session", id, lambda: session(desk.pipe.store, id))

    async def lines() -> AsyncIterator[bytes]:
        async for item in export_session(desk.pipe.store, stored):
            yield json_line(item) + b"\n"

    headers = {"content-disposition": f'attachment; filename="{stored.id}.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


async def confirm_delete(desk: Desk, visit: Visit) -> Response:
    """Says what will be gone. Changes nothing."""
    stored = await session(desk.pipe.store, visit.form.one("id"))
    return desk.page("delete.html", visit, here=_link(stored), stored=stored)


async def delete(desk: Desk, visit: Visit) -> Response:
    """Deletes the session, if it is still as it was when the deletion was confirmed."""
    id = visit.form.one("id")

    async def work() -> int:
        stored = await session(desk.pipe.store, id)
        if str(stored.version) != visit.form.one("version"):
            raise CannotDo("the session has gone on since you looked: nothing was deleted; look at it again")
        return (await delete_session(desk.pipe.store, stored)).messages

    count = await desk.act(visit, "delete session", id, work)
    return desk.done(visit, f"The session and its {count} rows are gone.", "/sessions")


def _link(stored: StoredSession) -> str:
    """The page of a session."""
    return link("/session", id=stored.id)
