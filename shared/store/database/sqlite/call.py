"""A call from an event loop to one of SQLite's threads: its steps, and the future that its caller waits for."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence

from shared.store.database import Row, Step
from shared.store.database.sqlite.errors import passes, translated


class DatabaseCall:
    """The steps of one caller. The thread attempts it, perhaps twice, and settles it once."""

    def __init__(self, steps: tuple[Step, ...], *, answers_from: int = 0, can_linger: bool = False) -> None:
        self.can_linger = can_linger
        self._steps = steps
        self._answers_from = answers_from  # the first step whose rows the caller wants
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[list[Row]]] = self.loop.create_future()
        self._result: list[list[Row]] = []
        self._error: BaseException | None = None

    def attempt(self, connection: sqlite3.Connection) -> bool:
        """Run the steps. False: an error that concerns this call alone. Raises an outage, which concerns the whole batch."""
        self._error = None
        cursor = connection.cursor()
        try:
            self._result = []
            for number, step in enumerate(self._steps):
                cursor.execute(step.statement.sqlite, step.values)
                self._result.append(cursor.fetchall() if number >= self._answers_from else [])
        except Exception as error:
            cursor.close()  # a statement that was left half read would keep the others from committing
            if passes(error) and connection.in_transaction:
                raise
            self._error = translated(error, connection)
        return self._error is None

    def fail(self, error: BaseException) -> None:
        """Nothing of it was written, for a reason that is not its own."""
        self._error = error

    def settle(self) -> None:
        """Tell the caller. To be called in their event loop."""
        if self.future.done():
            return
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(self._result)


def settle(calls: Sequence[DatabaseCall]) -> None:
    """Tell all callers, with one wake-up of each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[DatabaseCall]] = {}
    for call in calls:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, mine in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is waiting any more
            loop.call_soon_threadsafe(_settle_each, mine)


def _settle_each(calls: Sequence[DatabaseCall]) -> None:
    for call in calls:
        call.settle()
