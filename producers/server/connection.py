"""A connection to the receiver. Before a request's headers are complete nobody has asked anything, so little is spent on it:
64 KB and 5 seconds. Connections that rest are closed, the longest first, when one address or all have too many of them.

An answer is written as fast as its reader takes it. A connection whose reader takes nothing for a while, or is gone without a
word, is cut: so a stream ends, and what it holds is free.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from producers.server.unverified import neighbourhood
from shared import metrics

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 5.0
RESTING_PER_ADDRESS = 256
RESTING_SECONDS = 30.0  # between an answer and the next request
UNREAD_SECONDS = 60.0  # for the 64 KB of an answer that are written ahead; and for a packet of ours to be acknowledged


class Resting:
    """The connections of a server that have no request under way, those first that have rested longest.

    One timer looks after all of them: uvicorn's, one for each answer, took 3 µs of CPU for each request.
    """

    def __init__(self, in_all: int | None = None) -> None:
        self._in_all = in_all if in_all is not None else _room()
        self._all: dict[HttpConnection, float] = {}  # since when, by the loop's clock
        self._of: dict[str, dict[HttpConnection, None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: HttpConnection) -> None:
        """It rests from now on; one that has for longer may have to go."""
        here = self._of.setdefault(connection.address, {})
        here[connection] = None
        self._all[connection] = connection.loop.time()
        if self._timer is None:
            self._timer = connection.loop.call_later(RESTING_SECONDS, self._close_old, connection.loop)
        if len(here) > RESTING_PER_ADDRESS:
            next(iter(here)).dismiss("too many connections of one address")
        elif len(self._all) > self._in_all:
            next(iter(self._all)).dismiss("too many connections")

    def remove(self, connection: HttpConnection) -> None:
        self._all.pop(connection, None)
        here = self._of.get(connection.address)
        if here is not None:
            here.pop(connection, None)
            if not here:
                del self._of[connection.address]

    def _close_old(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close those whose time is over, and come again when the next one's is, in a second at the earliest."""
        self._timer, now = None, loop.time()
        while self._all:
            connection, since = next(iter(self._all.items()))
            if since > now - RESTING_SECONDS:
                self._timer = loop.call_later(max(since + RESTING_SECONDS - now, 1.0), self._close_old, loop)
                return
            self.remove(connection)
            connection.has_rested()


class HttpConnection(HttpToolsProtocol):
    """One connection, cut off when its head is too long or too slow, or when it rests for too long."""

    def __init__(self, resting: Resting, **options: Any) -> None:
        super().__init__(**options)
        self._resting = resting
        self._head_bytes = 0
        self._in_head = False
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self.address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = neighbourhood(self.client[0]) if self.client else ""
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_late)
        self._resting.add(self)
        if (line := transport.get_extra_info("socket")) is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_SECONDS * 1000))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lift_deadline()
        self._is_read()
        self._resting.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self.dismiss("large head", b"431 Request Header Fields Too Large")
        elif self._deadline is None:  # a further request on a connection that was used before
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self._cut_off)

    def resume_writing(self) -> None:
        self._is_read()
        super().resume_writing()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._lift_deadline()
        self._resting.remove(self)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """As uvicorn's, which would set a timer here: `Resting` has one for all."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._resting.add(self)

    def has_rested(self) -> None:
        """Nobody asked anything for long: close it, unless somebody begins to just now. That has a deadline of its own."""
        if self._in_head:
            self._resting.add(self)
        else:
            self.transport.close()

    def dismiss(self, reason: str, status: bytes | None = None) -> None:
        """Close it, with a word where a request had begun."""
        metrics.REFUSED.labels(reason).inc()
        self._lift_deadline()
        self._resting.remove(self)
        if status is not None:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()

    def _too_late(self) -> None:
        self._deadline = None
        self.dismiss("slow head", b"408 Request Timeout" if self._in_head else None)

    def _cut_off(self) -> None:
        """The reader takes nothing. A polite end would wait behind what it does not take."""
        metrics.REFUSED.labels("slow reader").inc()
        self.transport.abort()

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _lift_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _room() -> int:
    """Half of the files that this process may open: the stores need theirs, and so do requests under way."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, (min(soft, 65_536) if soft > 0 else 65_536) // 2)
