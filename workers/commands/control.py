"""Commands that do not wait behind a running turn: /stop and /status; /queue is in queue.py. They come by the control lane,
from any process."""

from __future__ import annotations

from shared.clock import iso, moment, now_ms
from shared.errors import Malformed, TooNew
from shared.lane.session_lock import joined
from shared.lane.stopping import stop as stop_key
from shared.mail import decode_mail
from shared.messages import Inbound
from shared.reading.keys import KeyPhase, state_of_key
from shared.tasks.starting import stop_tasks
from workers.commands import Command, CommandAnswer, CommandCall, register


async def stop(call: CommandCall) -> CommandAnswer:
    """End the running turn and its background tasks, and drop what waited when this was said; what is said afterwards is
    answered.

    Where several keys are on one session, all of them are stopped: it is one conversation.
    """
    at_ms, running, count, unread = call.inbound.received_at, False, 0, 0
    keys = (call.session_key, *joined(call.session.facts, call.session_key))
    for key in keys:
        stopped = await stop_key(call.pipe.turns, key, at_ms, call.pipe.settings.mailbox_limit)
        if stopped is None:
            continue
        meant = [_meant(at_ms, payload) for payload in stopped.mail]
        unread += meant.count(None)
        if any(meant):
            running, count = running or stopped.running, count + meant.count(True)
    tasks = await stop_tasks(call.pipe, keys, at_ms)
    return CommandAnswer(_stopped(running, count, tasks) + _left_to_newer(unread))


def _stopped(running: bool, count: int, tasks: int) -> str:
    if tasks:
        behind = "1 background task" if tasks == 1 else f"{tasks} background tasks"
        return f"{_stopped(running, count, 0)} I stopped {behind}." if count else f"Stopped: {behind}."
    if not count:
        return "Nothing is running."
    messages = "1 message" if count == 1 else f"{count} messages"
    if not running:
        return f"Nothing was running. I dropped {messages} that waited."
    waited = f", {count - 1} of which waited" if count > 1 else ""
    return f"Stopped: {messages}{waited}."


def _left_to_newer(unread: int) -> str:
    """What is said of messages that only a newer worker can read: it drops those that were said before this."""
    if not unread:
        return ""
    messages, them = ("1 message waits", "it") if unread == 1 else (f"{unread} messages wait", "them")
    return f" {messages} for a newer version of me, which drops {them} if sent before this."


async def status(call: CommandCall) -> CommandAnswer:
    """The conversation, and what is being done for it now."""
    row = await call.store.sessions.find(call.session_key)
    lines = ["Nothing has been said here yet."]
    if row is not None:
        lines = [
            f"Session {row['id']}" + (f" “{row['title']}”" if row["title"] else ""),
            f"since {iso(row['created_at'])}, last activity {iso(row['updated_at'])}",
            f"{row['message_count']} rows",
        ]
    state = await state_of_key(call.pipe.turns, call.session_key)
    if state.state is KeyPhase.LEASED and state.since is not None:
        seconds = max(0, int((moment(now_ms()) - state.since).total_seconds()))
        lines.append(f"Working since {iso(state.since)} ({seconds} s); {max(0, state.waiting - 1)} more waiting")
    elif state.waiting:
        lines.append(f"{state.waiting} waiting")
    return CommandAnswer("\n".join(lines))


def _meant(at_ms: int, payload: bytes) -> bool | None:
    """Whether this is a message that was said by then; None where only a newer worker can tell. Notes to take were said by
    nobody, and /stop leaves them."""
    try:
        content = decode_mail(payload)
    except TooNew:
        return None
    except Malformed:
        return False
    return isinstance(content, Inbound) and content.received_at <= at_ms


register(Command("stop", "stop what I am doing, and drop what waits", stop))
register(Command("status", "this conversation, and what I am doing", status))
