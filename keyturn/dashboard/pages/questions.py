"""Questions: what waits for a person's answer or approval. An operator may withdraw one, and answers none."""

from __future__ import annotations

from starlette.responses import Response

from keyturn.dashboard.desk import ROWS, Desk, Visit
from keyturn.dashboard.render import link
from shared.operating.questions import withdraw_question
from shared.reading.questions import question, question_page, who_may_answer

PAGE = "/questions"


async def show(desk: Desk, visit: Visit) -> Response:
    after = (visit.number("after", 0), visit.asked("id"))
    found = await question_page(desk.pipe.store, ROWS + 1, after)
    more = found[ROWS - 1].place if len(found) > ROWS else None
    who = who_may_answer(desk.pipe.settings)
    return desk.page("questions.html", visit, questions=found[:ROWS], more=more, who=who)


async def show_one(desk: Desk, visit: Visit) -> Response:
    return await _page(desk, visit, visit.asked("id"), with_text=False)


async def read(desk: Desk, visit: Visit) -> Response:
    """The same page with the question's words and the arguments of its call. Each showing is in the audit log."""
    id = visit.form.one("id")
    return await desk.act(visit, "read question", id, lambda: _page(desk, visit, id, with_text=True))


async def _page(desk: Desk, visit: Visit, id: str, *, with_text: bool) -> Response:
    found = await question(desk.pipe.store, id)
    values = {"question": found, "with_text": with_text, "who": who_may_answer(desk.pipe.settings)}
    return desk.page("question.html", visit, here=link("/question", id=id), **values)


async def withdraw(desk: Desk, visit: Visit) -> Response:
    id = visit.form.one("id")
    withdrawn = await desk.act(visit, "withdraw question", id, lambda: withdraw_question(desk.pipe.store, id))
    text = "The question is withdrawn. The agent goes on without an answer, and the chat reads what it says then."
    return desk.done(visit, text, link("/conversation", key=withdrawn.session_key))
