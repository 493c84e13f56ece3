"""A small HTTP server for fakes of platforms: a function gives the answers, and every request is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from enum import Enum
from typing import Any

from shared.value import value
from tests.contract.case import Answer

END_SECONDS = 5.0


@value
class Request:
    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    raw: bytes  # as it came


class NoAnswer(Enum):
    CUT = "the connection is cut instead of an answer"
    SILENCE = "the connection stays open and nothing comes"


Given = Answer | NoAnswer
Answering = Callable[[Request], Given | Coroutine[Any, Any, Given]]


class FakeApi:
    """Answers at `url`. `answer` may be replaced at any time."""

    def __init__(self, answer: Answering) -> None:
        self.answer = answer
        self.url = ""
        self.requests: list[Request] = []
        self._open: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while True:
                request = await read_request(reader)
                self.requests.append(request)
                given = self.answer(request)
                given = await given if asyncio.iscoroutine(given) else given
                if given is NoAnswer.SILENCE:
                    await asyncio.Event().wait()
                if not isinstance(given, Answer):
                    return
                writer.write(_written(given))
                await writer.drain()
                if request.headers.get("connection", "").lower() == "close":
                    return
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # the client has gone, or we are closing
        finally:
            self._open.discard(task)
            writer.close()

    def close(self) -> None:
        for task in list(self._open):
            task.cancel()


@asynccontextmanager
async def open_api(answer: Answering = lambda _: Answer(404)) -> AsyncIterator[FakeApi]:
    api = FakeApi(answer)
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, limit=1 << 20)
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()
        api.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await server.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Request(method, path, headers, body, head + body)


def _written(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} Said", f"content-length: {len(answer.body)}"]
    lines += [f"{name}: {text}" for name, text in answer.headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + answer.body
