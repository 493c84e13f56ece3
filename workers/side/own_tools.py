"""The tools that Keyturn itself offers a model, where LLM__OWN_TOOLS names them. They act with the rights of who speaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shared.agent.steps import Effect
from shared.announcing import Announcement, announce
from shared.clock import iso
from shared.errors import CannotDo, Malformed
from shared.operating.schedules import Maker, WantedSchedule, add_schedule, remove_schedule
from shared.permission import beyond_reach
from shared.pipeline import Pipeline
from shared.reading.schedules import ShownSchedule, listed_schedules
from shared.targets import parse_targets
from workers.agents.tools.tool import CallContext, Tool

LISTED = 50


def own_tools(pipe: Pipeline, names: Sequence[str]) -> list[Tool]:
    """The tools of these families, in a fixed order."""
    families: dict[str, Callable[[Pipeline], list[Tool]]] = {"schedule": _schedule_tools, "send": _send_tools}
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


async def _added(pipe: Pipeline, wanted: WantedSchedule, context: CallContext) -> str:
    return _line(await add_schedule(pipe, wanted, _maker(context), key=context.key))


async def _said(do: Callable[[], Any]) -> str:
    """What the model is told, also where something is not allowed."""
    try:
        said: str = await do()
        return said
    except (CannotDo, Malformed) as error:
        return f"Not done: {error}."


def _maker(context: CallContext) -> Maker:
    return Maker(context.speaker.owner, context.source)


def _line(schedule: ShownSchedule) -> str:
    times = ", ".join(iso(at) for at in schedule.next)
    return f"{schedule.id} ({schedule.name}): {schedule.when}; next {times or 'never'}; {schedule.state}"
