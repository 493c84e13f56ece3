"""A session's replies as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio
import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from shared.pipeline import Pipeline
from shared.reading.replies import replies

CLOSE_SECONDS = 5.0


async def follow_replies(pipe: Pipeline, session_key: str, after: int) -> AsyncGenerator[bytes]:
    """The replies of a session after a given one, old and new. Close it: it holds a connection."""
    async with aclosing(replies(pipe, session_key, after)) as source:
        async for reply in source:
            if reply is None:
                yield b": alive\n\n"
            else:
                yield b"id: %d\nevent: reply\ndata: %s\n\n" % (reply.id, orjson.dumps(reply))


class EventStream(StreamingResponse):
    """Server-sent events from a source that is closed with the response: when the reader leaves, or we are stopping. `leave` is
    called then, whether the reader has seen anything or not."""

    media_type = "text/event-stream"

    def __init__(
        self, source: AsyncGenerator[bytes], stopping: asyncio.Event, leave: Callable[[], None] | None = None
    ) -> None:
        super().__init__(source, headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._source = source
        self._stopping = stopping
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._leave is not None:
                self._leave()

    async def stream_response(self, send: Send) -> None:
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            with anyio.CancelScope() as scope:
                stopped.add_done_callback(lambda _: scope.cancel())
                await super().stream_response(send)
            if scope.cancelled_caught:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            stopped.cancel()
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):  # the reader's departure cancels us, not this
                await self._source.aclose()
