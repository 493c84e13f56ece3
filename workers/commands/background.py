"""/background and /btw: work beside the conversation. They come by the control lane, so they do not wait behind a running turn."""

from __future__ import annotations

from shared.errors import CannotDo
from shared.owner import owner_of
from shared.tasks.starting import TEXT_LIMIT, TaskAsker, WantedTask, start_task
from shared.tasks.task import TaskKind
from workers.commands import Command, CommandAnswer, CommandCall, register


async def background(call: CommandCall) -> CommandAnswer:
    """Let the agent do something in a conversation of its own; the chat is told the result."""
    return await _started(call, TaskKind.BACKGROUND, "I am on it, in the background: “{name}”. I will tell you here.")


async def btw(call: CommandCall) -> CommandAnswer:
    """The same, knowing what was said in this conversation so far. The conversation itself goes on as if it had not been asked."""
    return await _started(call, TaskKind.ASIDE, "I am looking into it: “{name}”.")


async def _started(call: CommandCall, kind: TaskKind, answer: str) -> CommandAnswer:
    if not call.args:
        return CommandAnswer(f"/{call.name} needs a text: what am I to do?")
    inbound = call.inbound
    owner = call.session.owner or owner_of(call.key, inbound.source) or ""
    try:
        wanted = WantedTask(kind, call.args, inbound.id, inbound.received_at)
        task = await start_task(call.pipe, wanted, TaskAsker(call.session_key, inbound.source, owner))
    except CannotDo as error:
        return CommandAnswer(f"Not done: {error}.")
    return CommandAnswer(answer.format(name=task.name))


register(
    Command(
        "background",
        "do something in the background, and tell me the result",
        background,
        aliases=("bg",),
        args="<text>",
        limit=TEXT_LIMIT,
    )
)
register(Command("btw", "answer a question aside, while you go on", btw, args="<text>", limit=TEXT_LIMIT))
