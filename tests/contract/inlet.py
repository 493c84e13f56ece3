"""A way in that is open, with the real pipeline behind it: bring something, and see what was kept of it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx
import orjson
from structlog.testing import capture_logs

from producers.listening import listen_on
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.contract.case import Held, Incoming, Post, Webhook
from tests.store.books import ask
from tests.support.door import Door, open_door

MakeSettings = Callable[..., Settings]
PATIENCE_SECONDS = 90.0
_MARK = "the mark behind everything"
_mark_ids = count(7_000_001)


class Inlet(ABC):
    """What both ways share: whatever was brought, and what the stores hold of it."""

    lines: list[Any]  # what our own code logged

    def __init__(self, pipe: Pipeline) -> None:
        self.pipe = pipe

    @abstractmethod
    async def bring(self, payload: Any) -> None:
        """Let the platform bring this. What a webhook answers must be what the case says."""

    @abstractmethod
    async def bring_raw(self, body: bytes) -> None:
        """The same for bytes as they come."""

    @abstractmethod
    async def settled(self) -> None:
        """Until nothing that was brought is still being settled."""

    async def kept(self) -> list[str]:
        """The texts of the messages that were taken in, chat by chat in the order of the journal, once all is settled."""
        await self.settled()
        return await self.texts()

    async def recorded(self) -> list[dict[str, Any]]:
        """The dead letters now: ask after `kept`."""
        return await ask(self.pipe.store, "SELECT kind, ref, reason FROM dead ORDER BY id")

    async def texts(self) -> list[str]:
        rows = await ask(self.pipe.store, "SELECT payload FROM inbox ORDER BY session_key, seq")
        found = [orjson.loads(row["payload"])["inbound"]["text"] for row in rows]
        return [text for text in found if text != _MARK]

    def nothing_unforeseen(self) -> None:
        """No error that nobody expected: neither an answer of 500 nor a listener that had to begin again."""
        assert [line for line in self.lines if line.get("exc_info") or line.get("status") == 500] == []


class WebhookInlet(Inlet):
    def __init__(self, pipe: Pipeline, case: Webhook, door: Door) -> None:
        super().__init__(pipe)
        self.case = case
        self.door = door
        self.lines = door.lines

    async def send(self, post: Post) -> httpx.Response:
        return await self.door.request(post.method, post.path, post.headers, post.body)

    async def post(self, payload: Any) -> httpx.Response:
        """Signed with the first secret."""
        return await self.send(self.case.post(orjson.dumps(payload), self.case.secrets[0]))

    async def bring(self, payload: Any) -> None:
        response = await self.post(payload)
        assert response.status_code in (*self.case.taken, self.case.recorded), response.text

    async def bring_raw(self, body: bytes) -> None:
        response = await self.send(self.case.post(body, self.case.secrets[0]))
        assert response.status_code == self.case.recorded, response.text

    async def settled(self) -> None:
        """An answered request is."""


class HeldInlet(Inlet):
    """A listener begins with the first event that is brought."""

    def __init__(self, pipe: Pipeline, case: Held, lines: list[Any]) -> None:
        super().__init__(pipe)
        self.case = case
        self.lines = lines
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def listen(self) -> None:
        if self._running is None:
            self._stopping = asyncio.Event()
            self._running = asyncio.create_task(listen_on(self.pipe, self.case.platform, self._stopping))

    async def bring(self, payload: Any) -> None:
        self.listen()
        await self.case.bring(payload)

    async def bring_raw(self, body: bytes) -> None:
        self.listen()
        await self.case.bring_raw(body)

    async def settled(self) -> None:
        """Events come one after another, and a listener that is stopped settles the batch that it has. So a message
        that is brought last and is there shows that all others are settled once the listener has stopped."""
        self.listen()
        mark = next(_mark_ids)
        await self.case.bring(self.case.said(_MARK, id=mark))
        marks = await self._marks()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._marks() == marks:
                await asyncio.sleep(0.01)
        await self.stop()

    async def stop(self) -> None:
        self._stopping.set()
        if self._running is not None:
            await self._running
        self._running = None

    async def _marks(self) -> int:
        rows = await ask(self.pipe.store, "SELECT payload FROM inbox")
        return sum(_MARK in row["payload"] for row in rows)


@asynccontextmanager
async def open_inlet(case: Incoming, make_settings: MakeSettings) -> AsyncIterator[Inlet]:
    """The way in of a case, with the settings that it names."""
    if isinstance(case, Webhook):
        async with open_webhook(case, make_settings, case.secrets[0]) as inlet:
            yield inlet
        return
    assert isinstance(case, Held)
    async with open_pipeline(make_settings(**case.blocks())) as pipe:
        with capture_logs() as lines:
            held = HeldInlet(pipe, case, lines)
            try:
                yield held
            finally:
                await held.stop()


@asynccontextmanager
async def open_webhook(case: Webhook, make_settings: MakeSettings, *secrets: str) -> AsyncIterator[WebhookInlet]:
    async with open_pipeline(make_settings(**case.blocks(*secrets))) as pipe, open_door(pipe) as door:
        yield WebhookInlet(pipe, case, door)
