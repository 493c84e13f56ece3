"""A websocket that we hold: text or bytes in and out. Whatever the other side does, an error says what a caller may do."""

from __future__ import annotations

import asyncio

import aiohttp

from shared.errors import Transient

FRAME_BYTES = 16 * 1024 * 1024  # of one frame that comes: more ends the connection
_ENDS = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)


class Closed(Transient):
    """The connection has ended. `code` is what the other side gave as the reason; None: it was cut."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"the connection was closed ({code if code is not None else 'cut'})")
        self.code = code


class WebSocket:
    """Frames are received by one task at a time; any task may send."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def receive(self, seconds: float | None = None) -> str | bytes:
        """The next frame. Raises Closed when there is none any more, and Transient when none came for so long.

        May be cancelled at any time: then the next call gives the frame.
        """
        try:
            async with asyncio.timeout(seconds):
                frame = await self._socket.receive()
        except TimeoutError:
            raise Transient("the connection is silent") from None
        if frame.type is aiohttp.WSMsgType.CLOSE:  # the socket forgets the code where our own goodbye cannot be sent
            raise Closed(int(frame.data) if frame.data else None)
        if frame.type in _ENDS:
            raise Closed(self._socket.close_code)
        data: str | bytes = frame.data
        return data

    async def send(self, frame: str | bytes) -> None:
        """Send a frame; Closed when the connection has ended."""
        try:
            await (self._socket.send_str(frame) if isinstance(frame, str) else self._socket.send_bytes(frame))
        except (aiohttp.ClientError, OSError):
            raise Closed(self._socket.close_code) from None

    async def close(self, code: int = 1000) -> None:
        """Say why, and end it. Never fails."""
        await self._socket.close(code=code)
