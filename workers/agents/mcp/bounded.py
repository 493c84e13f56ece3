"""How much an MCP server with a URL may answer at once. The SDK reads an answer in JSON whole; of a stream it bounds each event."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from workers.agents.mcp.stdio import LINE_BYTES

ANSWER_BYTES = LINE_BYTES  # the same as for a message of a program
HEADERS = {"accept-encoding": "identity"}  # a small compressed answer could become a very large one


class AnswerTooLarge(httpx2.StreamError):
    """The SDK makes it an error of the call that was answered so."""


async def bound(response: httpx2.Response) -> None:
    """To be called with each answer before it is read: a hook of the HTTP client."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise httpx2.DecodingError(
            f"compressed though we did not ask for it: {encoding!r:.40}", request=response.request
        )
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > ANSWER_BYTES:
                raise AnswerTooLarge(f"the answer is larger than {ANSWER_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
