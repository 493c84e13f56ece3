"""Dead letters: listed, read, replayed and dropped; in bulk after a dry run that says what would be done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
from starlette.responses import Response

from keyturn.dashboard.desk import ROWS, Desk, Visit
from keyturn.dashboard.render import link
from shared.codec import encode_text
from shared.errors import CannotDo, Unavailable
from shared.operating.dead_bulk import BulkRun, LetterAction, LetterFilter, bulk_run, go_on, matching_letters
from shared.operating.dead_letters import drop_letter, edit_and_replay_letter, replay_letter
from shared.reading.dead_letters import NEWEST, LetterState, dead_letter, dead_letter_page

LARGEST = 2**63 - 1


async def search(desk: Desk, visit: Visit) -> Response:
    text = visit.asked("state") or LetterState.OPEN.value
    if text not in list(LetterState):
        raise CannotDo(f"state={text}: choose from {', '.join(LetterState)}")
    state = LetterState(text)
    letters = await dead_letter_page(desk.pipe.store, state, ROWS + 1, visit.number("before", NEWEST))
    more = letters[ROWS - 1].id if len(letters) > ROWS else None
    groups = sorted({(letter.kind, letter.reason) for letter in letters[:ROWS]})
    values = {"state": state, "states": list(LetterState), "letters": letters[:ROWS], "more": more, "groups": groups}
    return desk.page("dead.html", visit, **values)


async def show(desk: Desk, visit: Visit) -> Response:
    return await _page(desk, visit, visit.number("id", 0), with_payload=False)


async def read(desk: Desk, visit: Visit) -> Response:
    """The same page with what the letter holds. Each showing is in the audit log."""
    id = _id(visit.form.one("id"))
    return await desk.act(visit, "read dead letter", str(id), lambda: _page(desk, visit, id, with_payload=True))


async def _page(desk: Desk, visit: Visit, id: int, *, with_payload: bool) -> Response:
    letter = await dead_letter(desk.pipe.store, min(id, LARGEST))
    here = link("/dead/letter", id=letter.id)
    return desk.page("letter.html", visit, here=here, letter=letter, with_payload=with_payload)


async def deal_with_one(desk: Desk, visit: Visit) -> Response:
    id, action = _id(visit.form.one("id")), _action(visit.form.one("action"))
    back = link("/dead/letter", id=id)
    if action is LetterAction.DROP:
        await desk.act(visit, "drop dead letter", str(id), lambda: drop_letter(desk.pipe.store, id))
        return desk.done(visit, f"Dead letter {id} was dropped. Its record stays.", back)
    replayed = await desk.act(visit, "replay dead letter", str(id), lambda: replay_letter(desk.pipe, id))
    if replayed.message is not None:
        back = link("/messages", id=replayed.message)
    return desk.done(visit, f"Dead letter {id} runs again. {replayed.note}".strip(), back)


async def edit_and_replay(desk: Desk, visit: Visit) -> Response:
    """A new message with the edited text, at the end of its conversation's line."""
    id, text = _id(visit.form.one("id")), visit.form.one("text").replace("\r\n", "\n")  # as browsers send lines
    done = await desk.act(
        visit, "edit and replay dead letter", str(id), lambda: edit_and_replay_letter(desk.pipe, id, text)
    )
    back = link("/messages", id=done.message)
    return desk.done(visit, f"The edited message runs as a new one at the end of its line. {done.note}".strip(), back)


async def plan_bulk(desk: Desk, visit: Visit) -> Response:
    """The dry run: what matches, and what would become of it. Changes nothing."""
    action, wanted = _action(visit.form.one("action")), _filter(visit)
    found = await matching_letters(desk.pipe.store, wanted)
    run = bulk_run(action, wanted, found)
    return desk.page("bulk.html", visit, here="/dead", found=found, **_shown(run))


async def run_bulk(desk: Desk, visit: Visit) -> Response:
    """The next letters of what the dry run counted, whatever has come since; then a page that goes on, or the list. Each letter
    has a row of its own in the audit log."""
    run, operator = _run(visit), desk.operator(visit)
    target = f"{run.left} letters: {_words(run.wanted)}"
    try:
        run = await desk.act(visit, f"{run.action.value} dead letters", target, lambda: go_on(desk.pipe, run, operator))
    except Unavailable as error:  # what was done is known all the same
        run = replace(run, stopped=str(error))
    if not run.is_over:
        return desk.page("bulk_run.html", visit, here="/dead", **_shown(run))
    failed = "; ".join(f"{count} not: {reason}" for reason, count in run.failed)
    mood = "warn" if run.failed else "good"
    return desk.done(visit, f"{run.done} letters were {_did(run)}. {failed}".strip(), "/dead", mood=mood)


def _shown(run: BulkRun) -> dict[str, Any]:
    """What pages say of a run; `fields` is the run itself, for the form that goes on with it."""
    fields = {
        "action": run.action.value,
        "kind": run.wanted.kind or "",
        "reason": run.wanted.reason or "",
        "key": run.wanted.session_key or "",
        "newest": run.newest,
        "count": run.count,
        "after": run.after,
        "done": run.done,
        "failed": encode_text(run.failed),
    }
    return {"run": run, "did": _did(run), "fields": fields, "words": _options(run.action, run.wanted)}


def _run(visit: Visit) -> BulkRun:
    """The run that a form carries. Its counts are for whoever reads them; nothing is decided by them."""
    form = visit.form
    try:
        newest, count, after, done = (_id(form.one(name)) for name in ("newest", "count", "after", "done"))
        failed = tuple((str(why), _id(str(number))) for why, number in orjson.loads(form.one("failed")))
    except (CannotDo, ValueError, TypeError):
        raise CannotDo("this is no run of ours: begin with a dry run") from None
    return BulkRun(_action(form.one("action")), _filter(visit), newest, count, after, done, failed)


def _did(run: BulkRun) -> str:
    return "replayed" if run.action is LetterAction.REPLAY else "dropped"


def _filter(visit: Visit) -> LetterFilter:
    kind, reason, key = (visit.form.one(name) or None for name in ("kind", "reason", "key"))
    return LetterFilter(kind, reason, key)


def _words(wanted: LetterFilter) -> str:
    named = {"kind": wanted.kind, "reason": wanted.reason, "key": wanted.session_key}
    return ", ".join(f"{name} {text}" for name, text in named.items() if text is not None)


def _options(action: LetterAction, wanted: LetterFilter) -> list[str]:
    """The words of the command that does the same."""
    named = {"--kind": wanted.kind, "--reason": wanted.reason, "--key": wanted.session_key}
    return [f"{action.value}-all", *(word for name, text in named.items() if text is not None for word in (name, text))]


def _action(text: str) -> LetterAction:
    try:
        return LetterAction(text)
    except ValueError:
        raise CannotDo(f"choose from {', '.join(LetterAction)}") from None


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise CannotDo("a dead letter has a number")
    return int(text)
