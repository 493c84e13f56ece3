"""A sender that keeps its pace whatever comes back, and the server that takes the replies. Both as light as can be.

A message's time runs from when it was due to be sent, not from when it was: a receiver that holds up the sender cannot
hide its delay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import orjson

_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Callback:
    """Takes replies at `url` and remembers when the one for each event came."""

    def __init__(self) -> None:
        self.url = ""
        self.came: dict[str, float] = {}
        self._open: set[asyncio.StreamWriter] = set()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                body = await _read_message(reader)
                at = time.perf_counter()
                writer.write(_OK)
                for event in orjson.loads(body)["in_reply_to"]:
                    self.came.setdefault(event, at)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    def hang_up(self) -> None:
        for writer in self._open:
            writer.close()


@asynccontextmanager
async def open_callback() -> AsyncIterator[Callback]:
    callback = Callback()
    server = await asyncio.start_server(callback.take, "127.0.0.1", 0)
    callback.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/replies"
    try:
        yield callback
    finally:
        server.close()
        callback.hang_up()


class Sender:
    """Posts over connections that stay open; a new one is made when all are busy."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Raises RuntimeError unless the answer is 200."""
        await self.send(raw_post("/webhooks/webhook", headers, body))

    async def send(self, request: bytes, good: tuple[bytes, ...] = (b"200",)) -> None:
        """Send a request as it is. Raises RuntimeError unless the answer has one of these statuses."""
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(request)
        status = (await reader.readuntil(b"\r\n")).split()[1]
        await _read_message(reader)
        if status not in good:
            raise RuntimeError(f"refused with {status.decode()}")
        self._free.append((reader, writer))

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


def raw_post(path: str, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
    """A request as it travels. Its length is among the headers."""
    head = b"".join(b"%s: %s\r\n" % header for header in headers)
    return b"POST %s HTTP/1.1\r\nhost: bench\r\n%s\r\n%s" % (path.encode(), head, body)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    return await reader.readexactly(length)
