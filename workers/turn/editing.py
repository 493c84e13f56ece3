"""Messages that a front end changed or asks again: what followed the message there leaves the conversation here, too.

A front end shows with each message what was said before it. If our transcript begins with exactly that and goes on, the user
went back. A sender that shows something else, such as the newest messages only, goes on where the conversation is. One that
shows nothing before the message says nothing about it: a first message that was changed cannot be told from the next one.
"""

from __future__ import annotations

from shared.store.change import Change
from workers.commands import Again
from workers.turn.attempt import Attempt


async def taken_back(attempt: Attempt) -> Again | None:
    """The turn as it runs where its user went back: on the rows before, and the commit takes the others out. They stay on
    disk. None: they did not."""
    said, session = attempt.inbound.terms.said_before if attempt.inbound.terms is not None else (), attempt.session
    if not said or session.message_count <= len(said):
        return None
    transcript = attempt.parts.pipe.store.transcript
    *before, last = await transcript.first_said(session.id, len(said) + 1) or [(0, "")]
    if tuple(text for _, text in before) != said:
        return None
    n, _ = last
    return Again(attempt.inbound.text, await transcript.window(attempt.key, before=n), Change(inactive_from=n))
