"""The forgetting of people, which may take longer than a request: it goes on in this process while pages ask how far it has come.

It ends with the process: what was removed stays removed, the row in the audit log says `begun`, and doing it again finishes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from shared.background import end_tasks, survived
from shared.ids import fresh_id
from shared.operating.forgetting import ForgetProgress, ForgottenPerson, Tell
from shared.person import Person

PATIENCE_SECONDS = 1.5  # a page waits so long for the result before it says how far the work has come
KEPT = 20  # of those that are over: their result may still be asked for


class RunningForgetting:
    """One person who is being forgotten. `progress` is how far it has come."""

    def __init__(self, person: Person, work: Callable[[Tell], Awaitable[ForgottenPerson]]) -> None:
        self.id = fresh_id()
        self.person = person
        self.progress: ForgetProgress | None = None
        self.task = asyncio.create_task(self._run(work))
        self.task.add_done_callback(_report)

    async def wait(self) -> bool:
        """Whether it is over, after waiting for it a little."""
        await asyncio.wait([self.task], timeout=PATIENCE_SECONDS)
        return self.task.done()

    async def _run(self, work: Callable[[Tell], Awaitable[ForgottenPerson]]) -> ForgottenPerson:
        return await work(self._tell)

    def _tell(self, progress: ForgetProgress) -> None:
        self.progress = progress


class Forgettings:
    """Those that run, and those that were over last. A person is forgotten once at a time."""

    def __init__(self) -> None:
        self._known: dict[str, RunningForgetting] = {}

    def begin(self, person: Person, work: Callable[[Tell], Awaitable[ForgottenPerson]]) -> RunningForgetting:
        """Begin to forget somebody, or find the work that does so now."""
        for known in self._known.values():
            if known.person == person and not known.task.done():
                return known
        begun = RunningForgetting(person, work)
        self._known[begun.id] = begun
        over = [id for id, one in self._known.items() if one.task.done()]
        for id in over[:-KEPT]:
            del self._known[id]
        return begun

    def find(self, id: str) -> RunningForgetting | None:
        return self._known.get(id)

    async def end(self) -> None:
        """Break off what still runs, when the process ends."""
        await end_tasks(*(one.task for one in self._known.values()))


def _report(task: asyncio.Task[ForgottenPerson]) -> None:
    """Somebody may have left the page that would have said it."""
    if not task.cancelled() and isinstance(error := task.exception(), Exception):
        survived("dashboard", "person not forgotten", error)
