"""The server of an `http` agent: it remembers requests, and answers as a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Posted:
    """One request as it arrived."""

    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        return str(self.body["turn"]["mail"][0]["text"])


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer. `is_cut`: the connection ends before the body does; `waits`: the body's end never comes."""

    body: bytes = b""
    kind: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False
    waits: bool = False


def plain(text: str) -> Answered:
    return Answered(text.encode())


def in_json(said: Any, status: int = 200, **headers: str) -> Answered:
    return Answered(orjson.dumps(said), "application/json", status, headers)


def streamed(*events: Any, end: bytes = b"\r\n\r\n") -> Answered:
    """Server-sent events, with the lines in between that such streams have."""
    body = b": keep alive\n\n" + b"".join(b"event: said\r\ndata: " + orjson.dumps(event) + end for event in events)
    return Answered(body, "text/event-stream")


class AgentServer:
    def __init__(self, answer: Callable[[Posted], Answered]) -> None:
        self.posted: list[Posted] = []
        self.url = ""
        self.hung_up = asyncio.Event()  # a client has ended its connection in the middle of an answer
        self.is_waiting = asyncio.Event()
        self._answer = answer
        self._open: set[asyncio.Task[None]] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
                while await self._take(reader, writer):
                    pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = orjson.loads(await reader.readexactly(int(headers["content-length"])))
        posted = Posted({"": head[0], **headers}, body)
        self.posted.append(posted)
        answer = self._answer(posted)
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in answer.headers.items())
        length = len(answer.body) + (99 if answer.is_cut or answer.waits else 0)
        told = f"HTTP/1.1 {answer.status} .\r\ncontent-type: {answer.kind}\r\ncontent-length: {length}\r\n{more}\r\n"
        writer.write(told.encode() + answer.body)
        await writer.drain()
        if answer.waits:
            self.is_waiting.set()
            await reader.read(1)
            self.hung_up.set()
        return not (answer.is_cut or answer.waits)


@asynccontextmanager
async def open_agent_server(answer: Callable[[Posted], Answered]) -> AsyncIterator[AgentServer]:
    server = AgentServer(answer)
    listening = await asyncio.start_server(server._serve, "127.0.0.1", 0, limit=1 << 24)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/turns"
    try:
        yield server
    finally:
        listening.close()
        for task in list(server._open):
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await listening.wait_closed()
