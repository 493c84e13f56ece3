"""How many messages that nobody wrote follow one from another: results of tasks, and steps towards a goal.

The count is in the id of a step and in the row of a task, so it goes on after a crash and in whichever process runs next.
"""

from __future__ import annotations

import re

from shared.store import Store

_STEP = re.compile(r"goal:([0-9]{1,6}):.*", re.DOTALL)
_RESULT = re.compile(r"(task_[0-9a-f]{30}):.*", re.DOTALL)


async def messages_in_a_row(store: Store, event_id: str) -> int:
    """Such messages up to the one with this event id, which is counted too; 0 for a message that somebody wrote."""
    if (step := _STEP.fullmatch(event_id)) is not None:
        return int(step[1])
    if (result := _RESULT.fullmatch(event_id)) is None:
        return 0
    task = await store.tasks.find(result[1])
    return task.in_a_row + 1 if task is not None else 1
