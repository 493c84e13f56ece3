"""A thread with a connection of its own. Calls queue up, and what waits together is run together."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence

from shared import log
from shared.errors import Unavailable
from shared.store.database import Row
from shared.store.database.sqlite.call import DatabaseCall, settle

BATCH = 256  # calls that are run together at most
LINGER_SECONDS = 0.005  # how long calls that can linger wait for others


class ConnectionThread:
    """Starts with its first call. An outage fails the calls that are under way; the next ones get a fresh connection."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        run: Callable[[sqlite3.Connection, Sequence[DatabaseCall]], None],
    ) -> None:
        self._connect = connect
        self._run = run
        self.calls: queue.SimpleQueue[DatabaseCall | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._started = False
        self._start = threading.Lock()

    async def run(self, call: DatabaseCall) -> list[list[Row]]:
        """The rows of a call, once the thread has run it."""
        if not self._started:
            with self._start:
                if not self._started:
                    self._started = True
                    self._thread.start()
        self.calls.put(call)
        return await call.future

    def close(self) -> None:
        """Run what was called for before, and end."""
        if self._started:
            self.calls.put(None)
            self._thread.join()

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        while True:
            batch = self._waiting()
            calls = [call for call in batch if call is not None]
            try:
                connection = connection or self._connect()
                self._run(connection, calls)
            except Exception as error:  # opening the file, BEGIN, COMMIT, or an outage: no single call's doing
                if not isinstance(error, sqlite3.Error):
                    log.get().error("SQLite: unexpected error", thread=self._thread.name, exc_info=True)
                for call in calls:
                    call.fail(Unavailable(f"SQLite: {error}"))
                with contextlib.suppress(sqlite3.Error):
                    if connection is not None:
                        connection.close()
                connection = None
            settle(calls)
            if len(calls) < len(batch):
                break
        if connection is not None:
            connection.close()

    def _waiting(self) -> list[DatabaseCall | None]:
        """The calls that wait, once there is one that cannot linger. None among them: the end."""
        batch = [self.calls.get()]
        until = time.monotonic() + LINGER_SECONDS
        while len(batch) < BATCH:
            lingers = all(call is not None and call.can_linger for call in batch)
            try:
                batch.append(self.calls.get(lingers, max(until - time.monotonic(), 0)))
            except queue.Empty:
                break
        return batch
