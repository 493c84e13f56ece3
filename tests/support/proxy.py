"""A TCP proxy between a client and a server, and everything a network may do to them.

delay   bytes arrive later, in order         hold   bytes of one or both ways wait: a black hole, or a half-open connection
cut     connections are reset and new ones refused
All of it lasts until `heal`; what was held then arrives, as it would from a network that comes back.
mute    what is connected now never delivers anything again, not even its end; who connects anew is served
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from contextlib import suppress
from enum import Flag, auto
from typing import cast

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST
PAUSE_AT = 1 << 20  # bytes held for one connection before its sender has to wait


class Way(Flag):
    TO_SERVER = auto()
    TO_CLIENT = auto()
    BOTH = TO_SERVER | TO_CLIENT


class Proxy:
    """Listens on a port of its own for as long as it lives; `target` is a port of this machine and may change."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.delay_seconds = 0.0
        self.held = Way(0)
        self._server: asyncio.Server | None = None
        self._pipes: set[_Pipe] = set()
        self._opening: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen; after a `cut`, on the same port again."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Pipe(self, Way.TO_SERVER), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def delay(self, seconds: float) -> None:
        self.delay_seconds = seconds

    def hold(self, ways: Way = Way.BOTH) -> None:
        """Connections stay and new ones are taken; nothing passes in the given directions."""
        self.held = ways

    def cut(self) -> None:
        """Reset what is connected, refuse what comes."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.reset()

    def reset(self) -> None:
        """Reset what is connected; whoever connects again reaches the target as it is now."""
        for pipe in list(self._pipes):
            pipe.abort()

    def mute(self) -> None:
        """What is connected stays connected and takes what it is given; nothing of it arrives, also after `heal`."""
        for pipe in list(self._pipes):
            pipe.muted = True

    async def heal(self) -> None:
        """Let everything pass again, at once."""
        self.delay_seconds, self.held = 0.0, Way(0)
        if self._server is None:
            await self.open()
        for pipe in list(self._pipes):
            pipe.flow()

    def close(self) -> None:
        self.cut()
        for task in list(self._opening):
            task.cancel()

    def connect(self, near: _Pipe) -> None:
        task = asyncio.create_task(self._connect(near))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, near: _Pipe) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, far = await loop.create_connection(lambda: _Pipe(self, Way.TO_CLIENT, near), "127.0.0.1", self.target)
        except OSError:
            near.abort()
            return
        near.join(far)


class _Pipe(asyncio.Protocol):
    """One end of a connection. What it receives goes out at the other end."""

    def __init__(self, proxy: Proxy, way: Way, other: _Pipe | None = None) -> None:
        self._proxy = proxy
        self._way = way
        self._other = other
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[float, bytes]] = deque()  # each with the time from which it may go on
        self._size = 0
        self._ended = False
        self._lost = False
        self.muted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._proxy._pipes.add(self)
        if self._way is Way.TO_SERVER:
            self._proxy.connect(self)

    def data_received(self, data: bytes) -> None:
        if self.muted:
            return
        loop = asyncio.get_running_loop()
        self._waiting.append((loop.time() + self._proxy.delay_seconds, data))
        self._size += len(data)
        if self._proxy.delay_seconds:
            loop.call_later(self._proxy.delay_seconds, self.flow)
        self.flow()
        if self._size > PAUSE_AT and self._transport is not None and not self._lost:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._ended = True
        self.flow()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._proxy._pipes.discard(self)
        if self._other is not None and not self._proxy.held and not self.muted:
            self._other.end()

    def join(self, other: _Pipe) -> None:
        self._other = other
        if self._lost:
            other.end()
        self.flow()

    def flow(self) -> None:
        """Pass on what waits, if it may."""
        if self.muted or self._other is None or self._way in self._proxy.held or self._other._transport is None:
            return
        now = asyncio.get_running_loop().time()
        while self._waiting and (not self._proxy.delay_seconds or self._waiting[0][0] <= now):
            _, data = self._waiting.popleft()
            self._size -= len(data)
            if not self._other._transport.is_closing():
                self._other._transport.write(data)
        if self._transport is not None and not self._lost and self._size <= PAUSE_AT:
            self._transport.resume_reading()
        if (self._ended or self._lost) and not self._waiting:
            self._other.end()

    def end(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            with suppress(OSError, ValueError):  # ValueError: it is closed already
                connected = self._transport.get_extra_info("socket")
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()
