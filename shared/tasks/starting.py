"""Starting background work, and stopping it.

A task is a row first, then an accepted inbound whose id follows from the task. After a crash between the two a housekeeper accepts
it (workers/upkeep/tasks.py), so whoever got an answer from here need not ask again.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared import log
from shared.clock import now_ms
from shared.codec import storable
from shared.context.labels import inert
from shared.door import accept
from shared.errors import CannotDo
from shared.failpoints import reach
from shared.lane.stopping import stop
from shared.messages import Source
from shared.pipeline import Pipeline
from shared.session_key import SessionKey
from shared.tasks.in_a_row import messages_in_a_row
from shared.tasks.task import BackgroundTask, TaskKind, TaskState, task_id, task_of
from shared.value import value

TEXT_LIMIT = 10_000  # characters
NAME_LIMIT = 60
MAIL_LIMIT = 100  # of a task's own conversation: what it was asked, and results of further tasks


@value
class WantedTask:
    """A task as somebody wishes it. `asked_with` is the same on every try: the id of a message, or the key of a tool call."""

    kind: TaskKind
    text: str
    asked_with: str
    asked_at: int  # when the message was received that it follows from
    after: str = ""  # the event id of that message: tasks in a row are counted by it


@value
class TaskAsker:
    """Who asks, and in which conversation."""

    session_key: str
    source: Source
    owner: str = ""


async def start_task(pipe: Pipeline, wanted: WantedTask, by: TaskAsker) -> BackgroundTask:
    """Let something be done in the background. CannotDo for what is not allowed. The same `asked_with` again starts nothing new."""
    bounds, text = pipe.settings.background, storable(wanted.text).strip()
    if not 0 < len(text) <= TEXT_LIMIT:
        raise CannotDo(f"a background task has 1 to {TEXT_LIMIT:,} characters")
    outer_id = task_of(by.session_key)
    outer = await pipe.store.tasks.find(outer_id) if outer_id is not None else None
    if outer_id is not None and (outer is None or outer.state is TaskState.STOPPED):
        raise CannotDo("this task is over")
    depth = 1 if outer is None else outer.depth + 1
    if depth > bounds.depth:
        raise CannotDo(
            "there is no background work here" if not bounds.depth else f"tasks may be {bounds.depth} deep, no deeper"
        )
    in_a_row = max(await messages_in_a_row(pipe.store, wanted.after), 0 if outer is None else outer.in_a_row)
    if in_a_row > bounds.in_a_row:
        raise CannotDo(f"{bounds.in_a_row} tasks in a row are the most: tell the user how far you came")
    task = BackgroundTask(
        task_id(f"{by.session_key} {wanted.asked_with}"),
        wanted.kind,
        inert(text, NAME_LIMIT),
        text,
        by.session_key if outer is None else outer.root_key,
        by.session_key,
        by.source if outer is None else SessionKey.parse(by.session_key).source,
        by.source,
        by.owner,
        depth,
        wanted.asked_at if outer is None else outer.asked_at,
        now_ms(),
        in_a_row,
    )
    if not await pipe.store.tasks.add(task, bounds.at_once):
        known = await pipe.store.tasks.find(task.id)
        if known is None:
            raise CannotDo(f"{bounds.at_once} background tasks are running already: wait, or /stop them")
        if known.state is not TaskState.RUNNING:
            return known
        task = known  # whoever began to start it may have died before the next line
    reach("task.before_accept")
    await accept(pipe, task.inbound(), task.key)
    log.get().info("background task started", task=task.id, parent=task.parent_key, depth=depth)
    return task


async def stop_tasks(pipe: Pipeline, session_keys: Iterable[str], at_ms: int) -> int:
    """Stop what was asked for in these conversations by then, and everything that it led to. Gives how many were running.

    A task that is just being started finds the mark when it begins. Tasks count as running until their turns were told, so that
    this can be repeated after a crash, or when Redis is back."""
    count, tasks = 0, pipe.store.tasks
    for key in session_keys:
        meant = await tasks.mark_stop(key, at_ms)
        for task in meant:
            reach("task.before_stop")
            await stop(pipe.turns, str(task.key), now_ms(), MAIL_LIMIT)
        if meant:
            await tasks.stop(key, at_ms, now_ms())
        count += len(meant)
    return count
