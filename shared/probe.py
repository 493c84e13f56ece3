"""/metrics and /healthz of a process that is no receiver. They are answered on its event loop: while that hangs, so do
they, and a supervisor sees it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared import log, metrics
from shared.settings import Settings

READ_SECONDS = 5.0
HEAD_LIMIT = 8192  # bytes
AT_ONCE = 16  # connections


@asynccontextmanager
async def open_probe(settings: Settings, kind: str) -> AsyncIterator[None]:
    """Serve while the block runs, where the settings name a port. One that is taken is reported, and nothing else depends on it.

    `kind` names this process among the metrics: every process has every counter, so only this tells that workers are asked.
    """
    metrics.PROCESS.labels(kind).set(1)
    if not settings.metrics.port:
        yield
        return
    server = None
    try:
        server = await asyncio.start_server(
            _Probe().answer, settings.metrics.host, settings.metrics.port, limit=HEAD_LIMIT
        )
    except OSError as error:
        log.get().error("METRICS__PORT cannot be listened on: no metrics of this process", error=error.strerror)
    try:
        yield
    finally:
        if server is not None:
            server.close()


class _Probe:
    def __init__(self) -> None:
        self._open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= AT_ONCE:
                with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
                    async with asyncio.timeout(READ_SECONDS):
                        head = await reader.readuntil(b"\r\n\r\n")
                        writer.write(_response(head))
                        await writer.drain()
        finally:
            self._open -= 1
            writer.close()


def _response(head: bytes) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method != b"GET":
        return _http("405 Method Not Allowed", b"")
    if path == b"/healthz":
        return _http("200 OK", b'{"status":"alive"}', "application/json")
    if path == b"/metrics":
        return _http("200 OK", metrics.render(), "text/plain; version=0.0.4; charset=utf-8")
    return _http("404 Not Found", b"")


def _http(status: str, body: bytes, kind: str = "text/plain") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
