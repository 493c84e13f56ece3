"""For platforms that never bring anything again: a file of this machine keeps each event until it is settled.

Each event is synced to the file before anything else is done with it. The file is emptied when all of it is settled. A crash
before that brings events again that were settled: the journal knows them by their ids, and dead letters are recorded once.

The files lie under DATA_DIR. Each process has a file of its own there and keeps it locked. When a process ends, however it
ends, the next listener of the account on this machine takes over its events, whether that listener leads or stands by.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path

from producers.heard import Event
from producers.spool_file import SpoolFile
from shared.failpoints import reach

AT_ONCE = 200  # events that are settled together
REWRITE_BYTES = 4 * 1024 * 1024  # a larger file is written anew once half of its events are settled


def spool_path(data_dir: Path, platform: str, credential: str) -> Path:
    return data_dir / "spool" / f"{platform}-{sha256(credential.encode()).hexdigest()[:16]}.jsonl"


class Spool:
    """The events of one account that wait to be settled, in their order. `waiting` is what the file of this process holds,
    and what could not be written to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting: deque[Event] = deque()
        self._file: SpoolFile | None = None
        self._settled = 0  # events that are still in the file
        self._writing = asyncio.Lock()  # a file that is emptied while somebody appends to it would lose what they wrote
        self._came = asyncio.Event()

    def close(self) -> None:
        """Leave what waits to the next process."""
        if self._file is not None:
            self._file.close()
            self._file = None

    async def keep(self, events: Sequence[Event]) -> None:
        """When this returns, a crash loses none of them. When it raises, they wait all the same, in memory only."""
        async with self._writing:
            try:
                reach("spool.before_keep")
                file = await self._own()
                await asyncio.to_thread(file.append, events)
                reach("spool.after_keep")
            finally:
                self._add(events)

    async def adopt(self) -> None:
        """Take over what processes that have ended left in their files. A crash in the middle leaves an event in two files:
        the journal knows it the second time."""
        async with self._writing:
            own = await self._own()
            for path in sorted(self.path.parent.glob(f"{self.path.stem}.*jsonl")):
                if path != own.path and (left := await asyncio.to_thread(SpoolFile.open, path)) is not None:
                    try:
                        await self._move(left, own)
                    finally:
                        left.close()

    async def next(self) -> Sequence[Event]:
        """The first of what waits, after waiting for it. They stay until they are forgotten."""
        while not self.waiting:
            self._came.clear()
            await self._came.wait()
        return tuple(islice(self.waiting, AT_ONCE))

    async def forget(self, count: int) -> None:
        """The first `count` are settled."""
        async with self._writing:
            for _ in range(count):
                self.waiting.popleft()
            self._settled += count
            reach("spool.before_forget")
            if self._file is not None and (not self.waiting or self._is_mostly_settled(self._file)):
                await asyncio.to_thread(self._file.replace, tuple(self.waiting))
                self._settled = 0
            reach("spool.after_forget")

    def _is_mostly_settled(self, file: SpoolFile) -> bool:
        return self._settled >= len(self.waiting) and file.size() > REWRITE_BYTES

    def _add(self, events: Sequence[Event]) -> None:
        self.waiting.extend(events)
        self._came.set()

    async def _move(self, left: SpoolFile, own: SpoolFile) -> None:
        if events := await asyncio.to_thread(left.read):
            reach("spool.before_adopt")
            await asyncio.to_thread(own.append, events)
            self._add(events)
            reach("spool.after_adopt")
        await asyncio.to_thread(left.path.unlink, missing_ok=True)

    async def _own(self) -> SpoolFile:
        """The file of this process. What its last owner left in it waits from now on."""
        if self._file is None:
            file = await asyncio.to_thread(SpoolFile.open_first_free, self.path)
            self._add(await asyncio.to_thread(file.read))
            self._file = file
        return self._file
