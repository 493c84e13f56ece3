"""What came of a task, as mail for the conversation that asked. Its id follows from the part of the answer, so it comes once."""

from __future__ import annotations

from dataclasses import replace

from shared.clock import now_ms
from shared.codec import message_id, storable
from shared.door import accept
from shared.errors import MailboxFull, Transient
from shared.messages import Kind, Media, TaskInbound
from shared.pipeline import Pipeline
from shared.session_key import SessionKey
from shared.tasks.task import BackgroundTask, TaskKind

SAID_NOTHING = "It ended and said nothing."
LOST = "It ended without a result. How far it came is unknown: look before you do the same again."


async def hand_over(pipe: Pipeline, task: BackgroundTask, text: str, part: str, media: tuple[Media, ...] = ()) -> str:
    """Accept a result for the conversation that asked, and give the id of the mail. `part` tells results of one task apart; the
    same again changes nothing. Transient while there is no room."""
    event_id = f"{task.id}:{part}"
    source = replace(task.parent, user=None, user_alt=None, user_name=None)  # they did not say it
    is_for_agent = task.kind is TaskKind.AGENT
    inbound = TaskInbound(
        message_id(source.platform, source.account, event_id),
        event_id,
        source,
        storable(f"[Background task “{task.name}”]\n{text}"),
        media,
        received_at=now_ms(),
        purpose=Kind.RESULT if is_for_agent else Kind.ANNOUNCEMENT,
        owned_by=task.owner or None,
        asked_by=task.asked_by,
    )
    try:
        return (await accept(pipe, inbound, SessionKey.parse(task.parent_key))).id
    except MailboxFull:
        raise Transient("the conversation that asked has no room for a result") from None
