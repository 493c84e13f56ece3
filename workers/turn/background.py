"""Turns of background work: what they are told, and that one that was stopped does not begin."""

from __future__ import annotations

from dataclasses import replace

from shared.context.marks import COMMAND, seed_row
from shared.store.transcript import LATEST
from shared.tasks.task import TaskKind, TaskState, task_of
from workers.turn.attempt import Attempt

TASK_NOTE = (
    "This is a task in the background: nobody waits here, and nobody can answer a question of yours. Your answer is the result, and "
    "goes to the conversation that asked. It must make sense by itself."
)
RESULT_NOTE = (
    "This is the result of a background task that you started. The user has not seen it: tell them what matters of it."
)
STEP_NOTE = (
    "Nobody has said this: you go on towards the goal of this conversation by yourself. Look first whether it is reached. If it is, tell "
    "the user, with what shows it, and do not go on."
)


async def open_task(attempt: Attempt) -> Attempt | None:
    """Begin a task; None: it was stopped meanwhile, or is forgotten. One that was asked aside begins with what the conversation
    has said so far."""
    store, id = attempt.parts.pipe.store, task_of(attempt.key)
    task = await store.tasks.find(id) if id is not None else None
    if task is None or task.state is TaskState.STOPPED:
        return None
    if task.kind is not TaskKind.ASIDE or attempt.session.version:
        return attempt
    rows = await store.transcript.window(task.parent_key, before=LATEST)
    return replace(attempt, seed=tuple(seed_row(row) for row in rows if not row.data.get(COMMAND)))
