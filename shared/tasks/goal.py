"""Going on towards a goal without being asked: the next step is mail that the conversation writes to itself, a bounded number of
times in a row. Each step hands over to the next, and begins with a look at what is reached."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

from shared.clock import now_ms
from shared.codec import message_id, storable
from shared.context.runtime import goal_of
from shared.door import accept
from shared.errors import CannotDo, MailboxFull, Malformed
from shared.mail import decode_inbound
from shared.messages import Kind, TaskInbound
from shared.pipeline import Pipeline
from shared.session_key import SessionKey
from shared.tasks.in_a_row import messages_in_a_row
from shared.tasks.starting import TEXT_LIMIT, TaskAsker
from shared.tasks.task import task_of


async def go_on(pipe: Pipeline, by: TaskAsker, handover: str, after: str) -> int:
    """Let the conversation go on by itself, and give the number of the step. CannotDo where it has no goal, or went on too often.

    `after` is the event id of the message that is being answered: steps in a row are counted by it, also where results of
    tasks stand between them, and one message leads to one
    step at the most. So asking twice does not double the steps, and neither does trying again after a crash.
    """
    most, text = pipe.settings.background.goal_steps, storable(handover).strip()
    if task_of(by.session_key) is not None or not by.owner:
        raise CannotDo("only a conversation with somebody goes on by itself")
    if not 0 < len(text) <= TEXT_LIMIT:
        raise CannotDo(f"what is handed over has 1 to {TEXT_LIMIT:,} characters")
    row = await pipe.store.sessions.find(by.session_key)
    goal = goal_of(await pipe.store.facts.of(row["id"])) if row is not None else None
    if goal is None or goal.status != "active":
        raise CannotDo("this conversation has no goal: /goal sets one")
    step = await messages_in_a_row(pipe.store, after) + 1
    if step > most:
        raise CannotDo(f"{most} steps in a row are the most: tell the user how far you came")
    origin = blake2b(f"{by.session_key} {after}".encode(), digest_size=15).hexdigest()
    event_id, source = f"goal:{step}:{origin}", replace(by.source, user=None, user_alt=None, user_name=None)
    id = message_id(source.platform, source.account, event_id)
    told = f"[Step {step} of at most {most} towards the goal]\n{text}"
    if (known := await pipe.store.journal.find(id)) is not None and not _says(known["payload"], told):
        raise CannotDo("you go on already when you have answered, with what you handed over first")
    inbound = TaskInbound(
        id,
        event_id,
        source,
        told,
        received_at=now_ms(),
        purpose=Kind.STEP,
        owned_by=by.owner,
        asked_by=by.source,
    )
    try:
        await accept(pipe, inbound, SessionKey.parse(by.session_key))
    except MailboxFull:
        raise CannotDo("too many messages are waiting here") from None
    return step


def _says(payload: str, text: str) -> bool:
    """Whether a step that was accepted says this. One that cannot be read any more has ended."""
    try:
        return decode_inbound(payload).text == text
    except Malformed:
        return True
