"""Conversations: found by a query, and one of them in one column of time."""

from __future__ import annotations

from itertools import pairwise

from starlette.responses import Response

from keyturn.dashboard.desk import ROWS, Desk, Visit
from keyturn.dashboard.render import link
from shared.errors import CannotDo, Malformed, NotFound
from shared.lane_key import conversation_of
from shared.operating.keys import release_key, stop_key
from shared.pause_scope import chat_of
from shared.reading.conversation_query import QUALIFIERS, parse_query
from shared.reading.conversations import LOOKED_AT, FoundConversations, find_conversations
from shared.reading.dead_letters import dead_letters_of
from shared.reading.deliveries import parts_of_conversation
from shared.reading.keys import KeyPhase
from shared.reading.mailbox import KeyInJournal, mailbox_of
from shared.reading.questions import questions_of, who_may_answer
from shared.reading.sessions import StoredSession, last_rows, session
from shared.reading.waiting_reason import waiting_reason
from shared.reading.workers import workers_of
from shared.session_key import SessionKey
from shared.value import value

TRANSCRIPT_ROWS = 100
PARTS = 20
LETTERS = 10
QUESTIONS = 10
ASKS = "It waits for a person's answer, and no worker waits with it."


async def search(desk: Desk, visit: Visit) -> Response:
    text, wrong = visit.asked("q"), ""
    found = FoundConversations((), True)
    try:
        found = await find_conversations(desk.pipe, parse_query(text), ROWS)
    except CannotDo as error:
        wrong = str(error)
    values = {"query": text, "wrong": wrong, "found": found, "qualifiers": QUALIFIERS, "looked_at": LOOKED_AT}
    return desk.page("conversations.html", visit, **values)


async def show(desk: Desk, visit: Visit) -> Response:
    return await _page(desk, visit, visit.asked("key"), with_text=False)


async def read(desk: Desk, visit: Visit) -> Response:
    """The same page with what was said. Each showing is in the audit log."""
    key = visit.form.one("key")
    return await desk.act(visit, "read conversation", key, lambda: _page(desk, visit, key, with_text=True))


async def _page(desk: Desk, visit: Visit, key: str, *, with_text: bool) -> Response:
    pipe = desk.pipe
    mailbox = await mailbox_of(pipe, key)
    pending = mailbox.journal.pending if isinstance(mailbox.journal, KeyInJournal) else 0
    stored = await _session(desk, key)
    # whoever could run its turns is known to the server of the key, so no other server has to answer
    alive = sum(worker.alive for worker in await workers_of(pipe.servers.of_key(key)))
    rows = await last_rows(pipe.store, stored.id, TRANSCRIPT_ROWS) if stored is not None else []
    questions = await questions_of(pipe.store, conversation_of(key), QUESTIONS)
    asks = bool(questions) and mailbox.state.state is KeyPhase.IDLE and not pending
    return desk.page(
        "conversation.html",
        visit,
        here=link("/conversation", key=key),
        key=key,
        mailbox=mailbox,
        gaps=_gaps([entry.seq for entry in mailbox.mail]),
        reason=ASKS if asks else waiting_reason(mailbox.state, pending, alive),
        stored=stored,
        rows=rows,
        with_text=with_text,
        sent=(await parts_of_conversation(pipe.store, conversation_of(key), PARTS))[::-1],
        questions=questions,
        who=who_may_answer(pipe.settings),
        letters=await dead_letters_of(pipe.store, key, LETTERS),
        turn_timeout=pipe.settings.turn_timeout_seconds,
        offers=_offers(key, {pause.scope for pause in desk.watch.pauses}),
    )


async def release(desk: Desk, visit: Visit) -> Response:
    key = visit.form.one("key")
    released = await desk.act(visit, "release key", key, lambda: release_key(desk.pipe, key))
    return desk.done(
        visit, f"The key was {released.was}. It is awake now and runs again.", link("/conversation", key=key)
    )


async def stop(desk: Desk, visit: Visit) -> Response:
    key = visit.form.one("key")
    stopped = await desk.act(visit, "stop key", key, lambda: stop_key(desk.pipe, key))
    what = "The running turn was asked to end" if stopped.was_running else "No turn was running"
    text = f"{what}. Messages that get no answer: {stopped.messages}."
    return desk.done(visit, text, link("/conversation", key=key))


@value
class PauseOffer:
    """A pause that this page can begin or end."""

    name: str  # what it holds
    scope: str
    held: bool  # it is paused now
    hint: str


def _offers(key: str, held: set[str]) -> list[PauseOffer]:
    """The conversation and its chat; nothing for the keys of other lanes."""
    try:
        conversation = SessionKey.parse(key)
    except Malformed:
        return []
    chat = chat_of(conversation).text
    return [
        PauseOffer(
            "conversation",
            key,
            key in held,
            "Its messages are accepted and wait. A turn that runs now is not cut short.",
        ),
        PauseOffer("chat", chat, chat in held, "The same for every conversation in this chat, and for replies to it."),
    ]


async def _session(desk: Desk, key: str) -> StoredSession | None:
    try:
        return await session(desk.pipe.store, key)
    except NotFound:
        return None


def _gaps(numbers: list[int]) -> set[int]:
    """The numbers before which some are missing in Redis: the journal has them, and the next turn takes them from there."""
    return {after for before, after in pairwise(numbers) if after != before + 1}
