"""Commands that take back what was said: /undo, /retry. Rows leave the conversation and stay on disk."""

from __future__ import annotations

from shared.store.change import Change
from workers.commands import Again, Command, CommandAnswer, CommandCall, register

PREVIEW = 40


async def undo(call: CommandCall) -> CommandAnswer:
    """Take the last words of the user out, and all that followed."""
    last = await call.store.transcript.last_said(call.session.id)
    if last is None:
        return CommandAnswer("There is nothing to undo.")
    preview = last.text if len(last.text) <= PREVIEW else last.text[: PREVIEW - 1] + "…"
    return CommandAnswer(f"Took back {last.rows_from_here} rows, from “{preview}” on.", Change(inactive_from=last.n))


async def retry(call: CommandCall) -> CommandAnswer | Again:
    """Say the user's last words again, as if nothing had followed them."""
    last = await call.store.transcript.last_said(call.session.id)
    if last is None:
        return CommandAnswer("There is nothing to retry.")
    history = await call.store.transcript.window(call.session_key, before=last.n)
    return Again(last.text, history, Change(inactive_from=last.n), last.media)


register(Command("undo", "take back your last message and what followed", undo))
register(Command("retry", "answer your last message again", retry))
