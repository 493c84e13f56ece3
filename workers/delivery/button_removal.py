"""Takes the buttons from a question that was answered, where the platform's messages can be changed.

Beside the answer, and never in its way: what fails here is left. A button that stays only says that its question is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from shared import log
from shared.background import end_tasks, survived
from shared.choices import Choice, turn_of
from shared.errors import PipelineError
from shared.failpoints import reach
from shared.lane_key import Destination
from shared.messages import Part
from shared.part_record import decode_part
from shared.pipeline import Pipeline
from shared.store.database import Row
from workers.delivery.budgeted_changes import BudgetedChanges
from workers.delivery.sender import Rewrites, Sender

SECONDS = 30.0  # for all of it, waits for the send budget included


class ButtonRemoval:
    """Changes messages through the senders of one process."""

    def __init__(self, pipe: Pipeline, senders: Mapping[str, Sender]) -> None:
        self._pipe = pipe
        self._senders = {name: sender for name, sender in senders.items() if isinstance(sender, Rewrites)}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, ask: str, still_open: Sequence[str] = ()) -> None:
        """Take the buttons of this question away, and of those asked with it that are not still open. Returns at once."""
        if self._senders:
            task = asyncio.create_task(self._try(ask, still_open))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        await end_tasks(*self._tasks)

    async def _try(self, ask: str, still_open: Sequence[str]) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                for row in await self._pipe.store.outbox.of_turn(turn_of(ask)):
                    if row["receipt"]:
                        await self._remove(row, still_open)
        except (PipelineError, TimeoutError) as error:
            log.get().info("buttons stay", ask=ask, error=f"{type(error).__name__}: {error}"[:200])
        except Exception as error:
            survived("buttons", "buttons stay", error, ask=ask)

    async def _remove(self, row: Row, still_open: Sequence[str]) -> None:
        """Change the message of an outbox row, if it has buttons that are to go."""
        record = decode_part(row["payload"])
        left = tuple(choice for choice in record.choices if _question(choice) in still_open)
        address = record.to or record.source.address
        sender = self._senders.get(address.platform)
        if left == record.choices or sender is None:
            return
        part = Part(
            row["id"],
            f"buttons_{row['id']}",
            "",
            record.source,
            record.in_reply_to,
            record.part,
            record.parts,
            record.text,
            elsewhere=record.to,
            edits=row["receipt"],
            choices=left,
        )
        changes = BudgetedChanges(self._pipe.budgets, Destination(*address.place))
        reach("buttons.before_removal")
        while (wait := await changes.change(lambda: sender.rewrite(part))) is not None:
            await asyncio.sleep(wait.total_seconds())


def _question(choice: Choice) -> str:
    """The id of the question that a choice answers."""
    return choice.command.split(" ")[1]
