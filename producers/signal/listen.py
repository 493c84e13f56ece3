"""Step 1 for Signal: the daemon's stream of events.

Once the daemon has handed an event over, it may be gone: older daemons never bring one again, newer ones remember the last
1,000. So each is kept on disk before it is settled, and the daemon is asked for what came behind the last one that was kept, by
whichever process. At a first start there is none, and nothing old is asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from producers.heard import Event, Heard
from producers.listening import Connection
from producers.signal.mentions import SignalAccount
from producers.signal.normalise import normalise
from producers.signal.position import LastEvent
from producers.signal.stream import SignalStream
from shared.background import end_tasks
from shared.pipeline import Pipeline
from shared.platforms.signal import NAME, SignalSettings
from shared.platforms.signal_api import Daemon, open_daemon


@asynccontextmanager
async def open_connections(pipe: Pipeline) -> AsyncIterator[Sequence[Connection]]:
    settings = pipe.settings.block(SignalSettings)
    async with open_daemon(settings) as daemon:
        yield [Stream(pipe, daemon, settings)]


class Stream(Connection):
    """The events of one account. What came and was not confirmed is brought again, also after a new connection."""

    name = NAME
    spools = True

    def __init__(self, pipe: Pipeline, daemon: Daemon, settings: SignalSettings) -> None:
        assert settings.account is not None
        self.credential = settings.account
        self._daemon = daemon
        self._me = SignalAccount(settings.account, settings.uuid)
        self._came: deque[tuple[Event, str]] = deque()  # each with the daemon's id; empty where it gives none
        self._changed = asyncio.Event()
        self._last = LastEvent(pipe, settings.account)
        self._reading: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        async with self._daemon.lines(await self._last.load()) as lines:
            self._reading = asyncio.create_task(self._read(lines))
            self._reading.add_done_callback(lambda _: self._changed.set())
            try:
                yield
            finally:
                await end_tasks(self._reading)

    async def next(self) -> Sequence[Event]:
        """What came; what the connection raised, once nothing is left."""
        while not self._came:
            assert self._reading is not None
            if self._reading.done():
                self._reading.result()
            self._changed.clear()
            await self._changed.wait()
        return tuple(event for event, _ in self._came)

    async def confirm(self, events: Sequence[Event]) -> None:
        """The daemon need not bring these again, whoever asks."""
        ids = [self._came.popleft()[1] for _ in events]
        if ids and ids[-1]:
            await self._last.save(ids[-1])

    def normalise(self, event: Event, received_at: int) -> Heard:
        return normalise(event.fields, self._me, received_at)

    async def _read(self, lines: AsyncIterator[bytes]) -> None:
        """Take what comes as soon as it comes: what stays behind in a connection that ends is lost."""
        stream = SignalStream()
        async for line in lines:
            if (event := stream.feed(line)) is not None:
                self._came.append((event, stream.last_id))
                self._changed.set()
