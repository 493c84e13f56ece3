"""The one writer of a process: calls that wait while a commit is being synced share the next one (group commit).

If one of them fails, all are rolled back and run again, each as a savepoint of its own: a call that fails takes nothing of
the others with it. A call that was answered is on disk, whatever crashes then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from shared.store.database import Row, Step
from shared.store.database.sqlite.call import DatabaseCall
from shared.store.database.sqlite.connection import begin, roll_back
from shared.store.database.sqlite.thread import ConnectionThread


class Writer:
    """Runs each call as a transaction: all of its steps, or none."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self.thread = ConnectionThread("sqlite-writer", connect, _commit)

    async def run(self, steps: tuple[Step, ...], *, can_linger: bool) -> list[list[Row]]:
        """The rows of each step, or only those of a query at the end. On disk when this returns."""
        answers_from = len(steps) - 1 if steps[-1].statement.asks else 0
        return await self.thread.run(DatabaseCall(steps, answers_from=answers_from, can_linger=can_linger))

    def close(self) -> None:
        self.thread.close()


def _commit(connection: sqlite3.Connection, calls: Sequence[DatabaseCall]) -> None:
    if not calls:
        return
    begin(connection)
    try:
        if not all(call.attempt(connection) for call in calls):
            roll_back(connection)
            if len(calls) == 1:
                return
            begin(connection)
            for call in calls:
                _attempt_alone(connection, call)
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def _attempt_alone(connection: sqlite3.Connection, call: DatabaseCall) -> None:
    connection.execute("SAVEPOINT call")
    if not call.attempt(connection):
        connection.execute("ROLLBACK TO call")
    connection.execute("RELEASE call")
