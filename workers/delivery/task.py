"""Where the answers of background tasks go: back to the conversation that asked, as mail.

The mail's id follows from the part's own key, so an attempt that is repeated hands nothing over twice.
"""

from __future__ import annotations

from shared.clock import now_ms
from shared.failpoints import reach
from shared.messages import Part, Receipt, State
from shared.pipeline import Pipeline
from shared.platforms.facts import Idempotency
from shared.tasks.results import LOST, hand_over
from shared.tasks.task import BackgroundTask, TaskState


class TaskSender:
    """Hands the answers of background tasks over."""

    idempotency = Idempotency.NATIVE  # mail is the same on every try

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe

    async def send(self, part: Part) -> Receipt:
        """Accept the answer for who asked, and let the task end. What a task says after it was stopped goes nowhere, and so does the
        answer of one that is not there: its conversation was deleted, or who asked was forgotten. Transient while there is no
        room for it."""
        tasks = self._pipe.store.tasks
        task = await tasks.find(part.to.chat)
        if task is None or task.state is TaskState.STOPPED:
            return Receipt("stopped" if task is not None else "forgotten")
        is_dead = task.state is TaskState.RUNNING and await self._is_dead(task)
        text = LOST if is_dead else part.text.strip()
        accepted = (
            await hand_over(self._pipe, task, text, part.idempotency_key, part.media) if text or part.media else ""
        )
        reach("task.after_result")
        await tasks.end(task.id, TaskState.FAILED if is_dead else TaskState.DONE, now_ms())
        return Receipt(accepted)

    async def _is_dead(self, task: BackgroundTask) -> bool:
        row = await self._pipe.store.journal.find(task.inbound_id)
        return row is not None and row["state"] == State.DEAD
