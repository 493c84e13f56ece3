"""The receiver behind the very server that `keyturn receive` runs, and senders with addresses of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from structlog.testing import capture_logs

from producers.server.app import build_app
from producers.server.bind import bind
from producers.server.process import server_config
from producers.server.unverified import UnverifiedRequests
from shared.pipeline import Pipeline
from tests.support.door import WAIT_SECONDS, Headers

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Receiver:
    pipe: Pipeline
    port: int
    unverified: UnverifiedRequests
    lines: list[Any]
    open: AsyncExitStack

    async def dial(self, address: str = HERE) -> Line:
        """A bare connection from this address, cut off at the end."""
        reader, writer = await asyncio.open_connection(HERE, self.port, local_addr=(address, 0))
        self.open.callback(lambda: writer.transport.abort())  # and is kept till then: a forgotten one closes itself
        return reader, writer

    async def post(self, path: str, body: bytes, headers: Headers, address: str = ELSEWHERE) -> httpx.Response:
        """One whole request, from somewhere else than the attacker's."""
        transport = httpx.AsyncHTTPTransport(local_address=address)
        async with httpx.AsyncClient(transport=transport, timeout=WAIT_SECONDS, trust_env=False) as client:
            return await client.post(f"http://{HERE}:{self.port}{path}", content=body, headers=dict(headers))

    async def until_unverified(self, count: int) -> None:
        """Wait until so many unverified requests are being read."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.unverified.count != count:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def receiving(pipe: Pipeline) -> AsyncIterator[Receiver]:
    listening = bind(HERE, 0)
    app = build_app(pipe)
    server = uvicorn.Server(server_config(app, pipe.settings))
    with capture_logs() as lines:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        async with AsyncExitStack() as stack:
            try:
                yield Receiver(pipe, listening.getsockname()[1], app.state.unverified, lines, stack)
            finally:
                server.should_exit = server.force_exit = True
                await serving
                listening.close()


def request_head(path: str, headers: dict[str, str], method: str = "POST") -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: test",
        *(f"{name}: {value}" for name, value in headers.items()),
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1")


async def status_of(reader: asyncio.StreamReader) -> int:
    """The status of the answer that comes; 0 when the line is cut without one."""
    async with asyncio.timeout(WAIT_SECONDS):
        try:
            line = await reader.readline()
        except ConnectionError:
            return 0
    return int(line.split()[1]) if line else 0
