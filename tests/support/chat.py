"""Chat completions in a test's hands: a caller, and agents that a test leads word by word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from shared.agent.events import Delta, Done, Event, Restarted, Row, Thought
from shared.agent.turn import Turn
from shared.messages import Entry, Reply
from tests.support.door import API_KEY, Door

PATH = "/v1/chat/completions"
SECONDS = 60.0
USAGE = {"model": "m", "requests": 1, "input": 7, "output": 3, "total": 10, "prompt": 7}


def a_request(*said: str, **changes: Any) -> dict[str, Any]:
    """A request with these words of a user and an assistant by turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(said or ("hello",))]
    return {"model": "main", "messages": messages, **changes}


@dataclass
class Caller:
    door: Door
    key: str = API_KEY

    async def ask(self, request: Any, **headers: str) -> httpx.Response:
        """One completion; header names are written with underscores."""
        body = request if isinstance(request, bytes) else orjson.dumps(request)
        async with asyncio.timeout(SECONDS):
            return await self.door.client.post(PATH, content=body, headers=self.headers(headers))

    @asynccontextmanager
    async def stream(self, request: Mapping[str, Any], **headers: str) -> AsyncIterator[Chunks]:
        body = orjson.dumps({**request, "stream": True})
        async with (
            asyncio.timeout(SECONDS),
            self.door.client.stream("POST", PATH, content=body, headers=self.headers(headers)) as response,
        ):
            assert response.status_code == 200, await response.aread()
            yield Chunks(response)

    def headers(self, more: Mapping[str, str]) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}", **{name.replace("_", "-"): text for name, text in more.items()}}


class Chunks:
    """The events of a stream, one by one."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments = 0
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, Any] | None:
        """The next chunk. None: the stream has ended as it should."""
        async for line in self._lines:
            if line.startswith(":"):
                self.comments += 1
            elif line == "data: [DONE]":
                return None
            elif line:
                chunk: dict[str, Any] = orjson.loads(line.removeprefix("data: "))
                return chunk
        raise AssertionError("the stream ended without [DONE]")

    async def text(self) -> str:
        """The next text that is not empty."""
        while True:
            chunk = await self.next()
            assert chunk is not None and "error" not in chunk, chunk
            if said := chunk["choices"][0]["delta"].get("content"):
                return str(said)

    async def rest(self) -> list[dict[str, Any]]:
        """All chunks until the end, which may be an error."""
        chunks: list[dict[str, Any]] = []
        while (chunk := await self.next()) is not None:
            chunks.append(chunk)
            if "error" in chunk:
                break
        return chunks


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c.get("choices"))


@dataclass
class Led:
    """An agent whose words a test says: each `say` is a delta, and `end` the answer."""

    turns: list[Turn] = field(default_factory=list)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)

    def say(self, text: str) -> None:
        self._events.put_nowait(Delta(text))

    def think(self, text: str) -> None:
        self._events.put_nowait(Thought(text))

    def row(self, text: str) -> None:
        self._events.put_nowait(Row(Entry("assistant", text)))

    def restart(self) -> None:
        self._events.put_nowait(Restarted())

    def end(self, text: str) -> None:
        self._events.put_nowait(Row(Entry("assistant", text, data={"usage": USAGE})))
        self._events.put_nowait(Done((Reply(text),)))

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        try:
            while True:
                event = await self._events.get()
                yield event
                if isinstance(event, Done):
                    return
        except asyncio.CancelledError:
            self.stopped.set()
            raise

    async def has_begun(self) -> Turn:
        async with asyncio.timeout(SECONDS):
            while not self.turns:
                await asyncio.sleep(0.005)
        return self.turns[-1]
