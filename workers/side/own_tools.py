"""The tools that Keyturn itself offers a model, where LLM__OWN_TOOLS names them. They act with the rights of who speaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shared.agent.steps import Effect
from shared.announcing import Announcement, announce
from shared.clock import iso
from shared.codec import message_id
from shared.errors import CannotDo, Malformed
from shared.operating.schedules import Maker, WantedSchedule, add_schedule, remove_schedule
from shared.permission import beyond_reach
from shared.pipeline import Pipeline
from shared.reading.schedules import ShownSchedule, listed_schedules
from shared.targets import parse_targets
from shared.tasks.goal import go_on
from shared.tasks.starting import TaskAsker, WantedTask, start_task
from shared.tasks.task import TaskKind
from workers.agents.tools.going_on import GOES_ON
from workers.agents.tools.tool import CallContext, Tool
from workers.side.looking_tools import memory_tools, search_tools, web_tools

LISTED = 50
NOT_READ = "Not done: this request belongs to no conversation, so nobody could read what comes later."


def own_tools(pipe: Pipeline, names: Sequence[str]) -> list[Tool]:
    """The tools of these families, in a fixed order."""
    families: dict[str, Callable[[Pipeline], list[Tool]]] = {
        "schedule": _schedule_tools,
        "send": _send_tools,
        "background": _background_tools,
        "goal": _goal_tools,
        "search": search_tools,
        "memory": memory_tools,
        "web": web_tools,
    }
    return [tool for family, make in families.items() if family in names for tool in make(pipe)]


def _schedule_tools(pipe: Pipeline) -> list[Tool]:
    async def schedule_add(when: str, text: str, context: CallContext, name: str = "", to: str = "origin") -> str:
        """Let yourself be asked something later, once or again and again; the answer goes to the chat.

        when: "20m", "2026-11-18 09:00", "every 2h", "every 1d at 09:00", or five cron fields.
        text: what you will be asked then. It must make sense by itself.
        to: "origin" for this chat; others may be used by admins only.
        """
        if context.is_scheduled and not pipe.settings.schedule.by_schedules:
            return "Not done: a scheduled turn may not make schedules."
        if to == "origin" and _is_alone(context):
            return NOT_READ
        wanted = WantedSchedule(when, text, (to,), name)
        return await _said(lambda: _added(pipe, wanted, context))

    async def schedule_list(context: CallContext) -> str:
        """List the schedules of whoever you are talking to."""
        owner = context.speaker.owner
        found = await listed_schedules(pipe.store, LISTED, owner) if owner else ()  # the operator's have an empty one
        return "\n".join(map(_line, found)) or "There are none."

    async def schedule_remove(id: str, context: CallContext) -> str:
        """Remove a schedule by its id."""

        async def removed() -> str:
            await remove_schedule(pipe.store, id, _maker(context))
            return "Removed."

        return await _said(removed)

    return [Tool(schedule_add, Effect.KEYED), Tool(schedule_list, Effect.READ), Tool(schedule_remove, Effect.KEYED)]


def _send_tools(pipe: Pipeline) -> list[Tool]:
    async def send_message(target: str, text: str, context: CallContext) -> str:
        """Send a text to another chat. Only admins may.

        target: "platform" for its home channel, "platform:chat" or "platform:chat:thread".
        """

        async def sent() -> str:
            targets = parse_targets([target])
            if beyond_reach(pipe.settings, context.source, targets):
                raise CannotDo("only an admin may send to other chats")
            said = Announcement(text, f"tool {context.speaker.owner}", context.key, context.source)
            [told] = await announce(pipe, said, targets)
            return f"{told.outcome}: {told.reason}" if told.reason else told.outcome

        return await _said(sent)

    return [Tool(send_message, Effect.KEYED)]


def _background_tools(pipe: Pipeline) -> list[Tool]:
    async def background_start(text: str, context: CallContext) -> str:
        """Let a helper like you do something in the background, while you go on. Its result comes to you later as a message of its
        own: do not wait for it in this answer. Several tasks may run at the same time.

        text: what is to be done. It must make sense by itself: the helper knows nothing of this conversation.
        """

        async def started() -> str:
            wanted = WantedTask(TaskKind.AGENT, text, context.key, context.asked_at, context.event_id)
            by = TaskAsker(context.session_key, context.source, context.speaker.owner)
            task = await start_task(pipe, wanted, by)
            return f"Started: {task.id}. Its result comes as a message."

        return NOT_READ if _is_alone(context) else await _said(started)

    async def background_list(context: CallContext) -> str:
        """List the background tasks of this conversation that have not ended."""
        found = await pipe.store.tasks.running(context.session_key, LISTED)
        return "\n".join(f"{task.id}: {task.name}" for task in found) or "There are none."

    return [Tool(background_start, Effect.KEYED), Tool(background_list, Effect.READ)]


def _goal_tools(pipe: Pipeline) -> list[Tool]:
    async def goal_go_on(handover: str, context: CallContext) -> str:
        """Go on towards the goal of this conversation when you have answered, without waiting for the user. Call it when you have done
        a step and the goal is not reached; what you answer now is told to the user.

        handover: what is done, what comes next, and how you will know that the goal is reached.
        """

        async def gone_on() -> str:
            by = TaskAsker(context.session_key, context.source, context.speaker.owner)
            step = await go_on(pipe, by, handover, context.event_id)
            return f"{GOES_ON}: step {step}."

        return "Not done: a scheduled turn has no goal." if context.is_scheduled else await _said(gone_on)

    return [Tool(goal_go_on, Effect.KEYED)]


async def _added(pipe: Pipeline, wanted: WantedSchedule, context: CallContext) -> str:
    return _line(await add_schedule(pipe, wanted, _maker(context), key=context.key))


async def _said(do: Callable[[], Any]) -> str:
    """What the model is told, also where something is not allowed."""
    try:
        said: str = await do()
        return said
    except (CannotDo, Malformed) as error:
        return f"Not done: {error}."


def _is_alone(context: CallContext) -> bool:
    """Whether the call answers a request without a conversation, of which nothing is kept: its chat is named after itself."""
    source = context.source
    return source.chat == message_id(source.platform, source.account, context.event_id)


def _maker(context: CallContext) -> Maker:
    return Maker(context.speaker.owner, context.source)


def _line(schedule: ShownSchedule) -> str:
    times = ", ".join(iso(at) for at in schedule.next)
    return f"{schedule.id} ({schedule.name}): {schedule.when}; next {times or 'never'}; {schedule.state}"
