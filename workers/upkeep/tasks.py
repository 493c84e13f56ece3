"""Background tasks whose end nobody recorded: begun anew, or reported as lost. None ends in silence."""

from __future__ import annotations

from shared import log
from shared.background import survived
from shared.clock import now_ms
from shared.door import accept
from shared.errors import Unavailable
from shared.messages import State
from shared.pipeline import Pipeline
from shared.store.tasks import UnseenTask
from shared.tasks.results import LOST, SAID_NOTHING, hand_over
from shared.tasks.task import TaskState
from workers.upkeep.housekeeping_duty import AT_ONCE

GRACE_MS = 10_000  # in which whoever started a task brings it to the journal
KEPT_MS = 24 * 3_600_000  # after its end a task is forgotten


class UnseenTasks:
    """Looks after tasks that count as running while their message has ended, or is not in the journal. The mail that it sends has
    an id that follows from the task, so several housekeepers send one."""

    def __init__(self, pipe: Pipeline) -> None:
        self.every_seconds = pipe.settings.sweep_seconds
        self._pipe = pipe

    async def look(self) -> float:
        """Once through all such tasks."""
        now = now_ms()
        for unseen in await self._pipe.store.tasks.unseen(now - GRACE_MS, AT_ONCE):
            if not unseen.is_leaving:
                try:
                    await self._settle(unseen)
                except Unavailable:
                    raise
                except Exception as error:  # it holds up none of the others
                    survived("housekeeper", "background task not settled", error, task=unseen.task.id)
        await self._pipe.store.tasks.forget(now - KEPT_MS)
        return self.every_seconds

    async def _settle(self, unseen: UnseenTask) -> None:
        task, tasks = unseen.task, self._pipe.store.tasks
        if (
            unseen.turn is None
        ):  # whoever started it died; or only Redis knows its message, and then this changes nothing
            await accept(self._pipe, task.inbound(), task.key)
        elif (unseen.turn, unseen.reason) == (State.SUPERSEDED, "stopped"):
            await tasks.end(task.id, TaskState.STOPPED, now_ms())
        elif unseen.turn == State.ANSWERED and not unseen.is_lost:
            await hand_over(self._pipe, task, SAID_NOTHING, "nothing")
            await tasks.end(task.id, TaskState.DONE, now_ms())
        else:
            await hand_over(self._pipe, task, LOST, "lost")
            await tasks.end(task.id, TaskState.UNKNOWN, now_ms())
            log.get().error("background task lost", task=task.id, turn=unseen.turn)
