"""A stream of server-sent events ends with its reader or with the server, and leaves its source closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from producers.api.events import EventStream

SECONDS = 60


class Source:
    """Says these, and then nothing until it is closed."""

    def __init__(self, *said: bytes, ends: bool = False) -> None:
        self._said, self._ends = said, ends
        self.silent, self.is_closed = asyncio.Event(), False

    async def events(self) -> AsyncGenerator[bytes]:
        try:
            for event in self._said:
                yield event
            self.silent.set()
            if not self._ends:
                await asyncio.Event().wait()
        finally:
            self.is_closed = True


async def test_a_stream_whose_source_ends_is_ended_once() -> None:
    source, sent = Source(b"a", b"b", ends=True), list[Any]()

    async def send(message: Any) -> None:
        sent.append(message)

    await EventStream(source.events(), asyncio.Event()).stream_response(send)
    head, *bodies = sent
    assert head["status"] == 200 and dict(head["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert dict(head["headers"])[b"cache-control"] == b"no-cache"
    assert dict(head["headers"])[b"x-accel-buffering"] == b"no"
    assert [body["body"] for body in bodies] == [b"a", b"b", b""]
    assert [body["more_body"] for body in bodies] == [True, True, False]
    assert source.is_closed


async def test_a_stream_ends_properly_when_the_server_stops() -> None:
    source, stopping, sent = Source(b"a"), asyncio.Event(), list[Any]()

    async def send(message: Any) -> None:
        sent.append(message)

    streaming = asyncio.create_task(EventStream(source.events(), stopping).stream_response(send))
    await asyncio.wait_for(source.silent.wait(), SECONDS)
    stopping.set()
    await asyncio.wait_for(streaming, SECONDS)
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert [message.get("body") for message in sent].count(b"") == 1 and source.is_closed


async def test_a_reader_that_leaves_leaves_nothing_open() -> None:
    source, stopping = Source(b"a"), asyncio.Event()

    async def send(message: Any) -> None:
        if message.get("body"):
            raise OSError("the reader has left")

    with pytest.raises(OSError, match="left"):
        await EventStream(source.events(), stopping).stream_response(send)
    assert source.is_closed
    await asyncio.sleep(0)  # a task that was cancelled ends in its own time
    assert len(asyncio.all_tasks()) == 1  # nobody waits for the server's end any more


async def test_a_request_that_is_cancelled_leaves_nothing_open() -> None:
    source = Source(b"a")

    async def send(message: Any) -> None: ...

    streaming = asyncio.create_task(EventStream(source.events(), asyncio.Event()).stream_response(send))
    await asyncio.wait_for(source.silent.wait(), SECONDS)
    streaming.cancel()
    await asyncio.wait([streaming], timeout=SECONDS)
    assert streaming.cancelled() and source.is_closed
