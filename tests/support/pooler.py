"""A connection pooler as pgbouncer is one in transaction mode: it stands between the product and a real PostgreSQL.

Each transaction goes to another of its few server connections, so what a session keeps (prepared statements, settings) is
not there in the next one. Startup parameters that would be a session's are refused, and the process id that a client is
told belongs to no server process.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

SERVER_CONNECTIONS = 3
KNOWN_PARAMETERS = {"user", "database", "application_name", "client_encoding", "datestyle", "timezone"}
PROTOCOL_3, ENCRYPTION_REQUESTS = 196608, (80877103, 80877104)
MADE_UP_PID = 2**31 - 1
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _startup(parameters: dict[str, str]) -> bytes:
    body = struct.pack("!i", PROTOCOL_3) + b"".join(f"{k}\0{v}\0".encode() for k, v in parameters.items()) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


class Pooler:
    def __init__(self, server_url: str, connections: int) -> None:
        self._connections = connections
        self._address = urlsplit(server_url)
        self._free: asyncio.Queue[_Streams] = asyncio.Queue()  # first in, first out: the next transaction gets another
        self._settings: list[bytes] = []  # what the server says of itself, for clients
        self._writers: list[asyncio.StreamWriter] = []
        self.refused: list[str] = []  # startup parameters
        self.transactions = 0

    async def open(self) -> None:
        for _ in range(self._connections):
            await self._connect()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    async def lead_to(self, server_url: str) -> None:
        """From here on transactions go to another server. None may be open; clients keep their connections."""
        while not self._free.empty():
            self._free.get_nowait()[1].close()
        self._address = urlsplit(server_url)
        await self.open()

    async def _connect(self) -> None:
        reader, writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        self._writers.append(writer)
        writer.write(_startup({"user": self._address.username or "", "database": self._address.path[1:]}))
        self._settings = []
        while (message := await _read_message(reader))[0] != b"Z":
            assert message[0] != b"E", message
            if message[0] == b"S":
                self._settings.append(_message(*message))
        self._free.put_nowait((reader, writer))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, until it goes."""
        self._writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            if await self._greet(reader, writer):
                await _Client(self._free, reader, writer, self).run()
        writer.close()

    async def replace(self) -> None:
        await self._connect()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        while True:
            length, code = struct.unpack("!ii", await reader.readexactly(8))
            body = await reader.readexactly(length - 8)
            if code not in ENCRYPTION_REQUESTS:
                break
            writer.write(b"N")
        if code != PROTOCOL_3:  # a cancel request
            return False
        words = body.decode().split("\0")
        if unknown := [name for name in words[:-2:2] if name.lower() not in KNOWN_PARAMETERS]:
            self.refused += unknown
            text = f"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: {unknown[0]}\0\0"
            writer.write(_message(b"E", text.encode()))
            return False
        writer.write(_message(b"R", struct.pack("!i", 0)) + b"".join(self._settings))
        writer.write(_message(b"K", struct.pack("!ii", MADE_UP_PID, 1)) + _message(b"Z", b"I"))
        return True


class _Client:
    def __init__(
        self,
        free: asyncio.Queue[_Streams],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pooler: Pooler,
    ) -> None:
        self._free = free
        self._reader = reader
        self._writer = writer
        self._pooler = pooler
        self._server: _Streams | None = None  # while a transaction is open
        self._unanswered = 0  # Sync and Query messages that the server has not answered yet
        self._pump: asyncio.Task[None] | None = None

    async def run(self) -> None:
        try:
            while (message := await _read_message(self._reader))[0] != b"X":
                if self._server is None:
                    self._server = await self._free.get()
                    self._pooler.transactions += 1
                    self._pump = asyncio.create_task(self._answer(self._server))
                self._unanswered += message[0] in (b"S", b"Q")
                self._server[1].write(_message(*message))
        finally:
            if self._server is not None and self._pump is not None:  # it went in the middle of a transaction
                self._pump.cancel()
                self._server[1].close()
                await self._pooler.replace()

    async def _answer(self, server: _Streams) -> None:
        """Give the client what the server says, until the transaction is over."""
        while True:
            kind, body = await _read_message(server[0])
            self._writer.write(_message(kind, body))
            self._unanswered -= kind == b"Z"
            if kind == b"Z" and body == b"I" and not self._unanswered:
                self._server = None
                self._free.put_nowait(server)
                return


@asynccontextmanager
async def open_pooler(server_url: str, connections: int = SERVER_CONNECTIONS) -> AsyncIterator[tuple[str, Pooler]]:
    """The URL of a pooler in front of this database, and the pooler."""
    pooler = Pooler(server_url, connections)
    await pooler.open()
    listener = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    address = urlsplit(server_url)
    try:
        yield f"postgresql://{address.username}@127.0.0.1:{port}{address.path}", pooler
    finally:
        listener.close()
        pooler.close()
