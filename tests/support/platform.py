"""A chat platform as delivery sees it: an HTTP server that takes callbacks, remembers every request, and can be trouble.

It either recognises a webhook-id that it has seen (idempotent) or shows the chat everything it takes (plain).
Trouble, whichever kind it is: errors, rate limits, answers that never come although the message was taken, slowness.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

import orjson
from pydantic import SecretStr

from shared import signing

SLOW_SECONDS = 0.3
RETRY_AFTER_SECONDS = 0.2


class Fault(StrEnum):
    ERROR = "error"  # 500, nothing taken
    BUSY = "busy"  # 429 with Retry-After, nothing taken
    DROP = "drop"  # taken, and the connection cut instead of an answer
    SLOW = "slow"  # taken, answered late


Trouble = Callable[[], Fault | None]


def no_trouble() -> Fault | None:
    return None


def random_trouble(seed: int, rate: float, faults: Iterable[Fault] = Fault) -> Trouble:
    """Trouble with one request in 1/rate, the same ones for the same seed and order."""
    rng, choice = random.Random(seed), tuple(faults)
    return lambda: rng.choice(choice) if rng.random() < rate else None


def scripted_trouble(faults: Iterable[Fault | None]) -> Trouble:
    """These answers one after another, and none after that."""
    coming = iter(tuple(faults))
    return lambda: next(coming, None)


@dataclass(frozen=True, slots=True)
class Callback:
    """One request as it arrived. Taken: the platform has it, whatever it answered."""

    at: float  # CLOCK_MONOTONIC
    id: str
    chat: str
    text: str
    in_reply_to: tuple[str, ...]
    part: int
    parts: int
    fault: Fault | None

    @property
    def taken(self) -> bool:
        return self.fault in (None, Fault.DROP, Fault.SLOW)


class Platform:
    def __init__(self, secret: str, *, idempotent: bool = True, trouble: Trouble = no_trouble) -> None:
        self.idempotent = idempotent
        self.trouble = trouble
        self.callbacks: list[Callback] = []
        self.forged = 0
        self._storm_ends = 0.0
        self.url = ""
        self._key = signing.decode_secret(SecretStr(secret))
        self._open: set[asyncio.Task[None]] = set()
        self._came = asyncio.Condition()

    def shown(self) -> dict[str, list[Callback]]:
        """What each chat shows, in order."""
        chats: dict[str, list[Callback]] = {}
        seen: set[str] = set()
        for callback in self.callbacks:
            if callback.taken and not (self.idempotent and callback.id in seen):
                seen.add(callback.id)
                chats.setdefault(callback.chat, []).append(callback)
        return chats

    def storm(self, seconds: float) -> None:
        """Answer 429 to everything for so long."""
        self._storm_ends = time.monotonic() + seconds

    async def wait_for(self, enough: Callable[[Platform], bool], seconds: float = 60) -> None:
        """Until what has arrived is enough."""
        async with asyncio.timeout(seconds), self._came:
            await self._came.wait_for(lambda: enough(self))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # the sender has gone, or we are closing
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take one request and answer it. False: the connection is to be cut."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if headers.get("webhook-signature") != signing.sign(self._key, id, int(timestamp or 0), body):
            self.forged += 1
            return await _send(writer, "401 Unauthorized")
        fault = Fault.BUSY if time.monotonic() < self._storm_ends else self.trouble()
        await self._take(id, orjson.loads(body), fault)
        if fault is Fault.DROP:
            return False
        if fault is Fault.ERROR:
            return await _send(writer, "500 Internal Server Error")
        if fault is Fault.BUSY:
            return await _send(writer, "429 Too Many Requests", f"retry-after: {RETRY_AFTER_SECONDS}\r\n")
        if fault is Fault.SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        return await _send(writer, "200 OK")

    async def _take(self, id: str, fields: dict[str, object], fault: Fault | None) -> None:
        chat, text = fields["chat"], fields["text"]
        replied, part, parts = fields["in_reply_to"], fields["part"], fields["parts"]
        assert isinstance(chat, dict) and isinstance(text, str) and isinstance(replied, list)
        assert isinstance(part, int) and isinstance(parts, int)
        callback = Callback(time.monotonic(), id, chat["id"], text, tuple(replied), part, parts, fault)
        self.callbacks.append(callback)
        async with self._came:
            self._came.notify_all()


async def _send(writer: asyncio.StreamWriter, status: str, header: str = "") -> bool:
    if writer.is_closing():  # the sender has gone
        return False
    writer.write(f"HTTP/1.1 {status}\r\n{header}content-length: 0\r\n\r\n".encode())
    await writer.drain()
    return True


@asynccontextmanager
async def open_platform(
    secret: str, *, idempotent: bool = True, trouble: Trouble = no_trouble
) -> AsyncIterator[Platform]:
    """A platform that answers at `platform.url` until the block ends."""
    platform = Platform(secret, idempotent=idempotent, trouble=trouble)
    server = await asyncio.start_server(platform._serve, "127.0.0.1", 0, limit=1 << 20)
    platform.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
    try:
        yield platform
    finally:
        server.close()
        for task in list(platform._open):
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await server.wait_closed()
