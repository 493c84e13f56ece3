"""A request's body: of bounded size, within bounded time.

A body that came together with its head is there when it is asked for: it is taken as it is, and no timer is set. With
`asyncio.timeout` and Starlette's stream around it, that took 30 µs of CPU instead of 3, in a receiver that takes about 150 for a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from starlette.requests import Request
from starlette.types import Message, Receive

from producers.server.unverified import TooManyFromOneAddress, TooManyInAll, UnverifiedRequest, UnverifiedRequests
from shared.errors import PipelineError
from shared.settings import Settings

LINGER_SECONDS = 5.0  # how long, and for how many bytes, a refused sender may go on sending
LINGER_BYTES = 32 * 1024 * 1024
KEEP_UP_SECONDS = 5.0  # by then an unverified body is complete, or has brought so much that it is worth the full time
KEEP_UP_BYTES = 64 * 1024
_COMPLETE = "keyturn.body_is_complete"  # in a request's scope: nothing of its body is still to come


class TooLarge(PipelineError):
    """More body than the settings allow."""

    def __init__(self, said: str = "too large") -> None:
        super().__init__(said)


class TooSlow(PipelineError):
    """The body did not arrive in time."""


class Broken(PipelineError):
    """The sender went away before its body was complete."""


async def read_body(request: Request, settings: Settings, most: int = 0) -> bytes:
    """The raw bytes of a request whose sender is known: TooLarge by its header or while reading, TooSlow when it drips. `most`:
    where it is more than MAX_BODY_BYTES."""
    most = max(most, settings.max_body_bytes)
    return await _read(request, most, settings, settings.body_timeout_seconds, None)


async def read_unverified_body(request: Request, settings: Settings) -> bytes:
    """The same before anybody knows who sent it: TooManyFromOneAddress or TooManyInAll when too many such requests are open.

    Bodies up to MAX_BODY_BYTES must be readable, because the signature covers them; so their number is bounded, their bytes
    together are bounded, and one that has not brought 64 KB within 5 s must be complete by then.
    """
    with _unverified(request) as held:
        most = settings.max_body_bytes
        return await _read(request, most, settings, min(KEEP_UP_SECONDS, settings.body_timeout_seconds), held)


async def read_away(request: Request) -> bool:
    """Take what is still being sent, within limits, and keep nothing of it. False: more is to come, or nobody knows."""
    if _COMPLETE in request.scope:
        return True
    size = 0
    try:
        with _unverified(request):
            async with asyncio.timeout(LINGER_SECONDS):
                while _COMPLETE not in request.scope:
                    size += len(_chunk(request, await request.receive()))
                    if size > LINGER_BYTES:
                        return False
    except (TimeoutError, Broken, TooManyFromOneAddress, TooManyInAll):
        return False
    return True


def header_values(request: Request, name: str) -> list[str]:
    """What a request says under a name. As `request.headers.getlist`, which takes 3 µs instead of 1."""
    key = name.lower().encode()
    return [value.decode("latin-1") for known, value in request.scope["headers"] if known == key]


async def _read(
    request: Request, most: int, settings: Settings, seconds: float, held: UnverifiedRequest | None
) -> bytes:
    for declared in header_values(request, "content-length"):
        if not (declared.isascii() and declared.isdigit() and len(declared) < 20) or int(declared) > most:
            raise TooLarge
    first = _at_once(request.receive)
    if first is not None and not first.get("more_body", False):
        chunk = _chunk(request, first)
        _keep(chunk, len(chunk), most, held)
        return chunk
    chunks, size = [], 0
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(seconds) as deadline:
            while _COMPLETE not in request.scope:
                chunk = _chunk(request, first or await request.receive())
                first, size = None, size + len(chunk)
                _keep(chunk, size, most, held)
                chunks.append(chunk)
                if held is not None and size >= KEEP_UP_BYTES:
                    deadline.reschedule(began + settings.body_timeout_seconds)
    except TimeoutError:
        raise TooSlow from None
    return b"".join(chunks)


def _at_once(receive: Receive) -> Message | None:
    """The next message of a request, if it is there; None if it has to be waited for. Then nothing of it is taken: the call
    ends where it began to wait, as it would when cancelled."""
    call = cast(Coroutine[Any, Any, Message], receive())
    try:
        call.send(None)
    except StopIteration as ended:
        return cast(Message, ended.value)
    call.close()
    return None


def _chunk(request: Request, message: Message) -> bytes:
    """The piece of the body in a message; Broken if the sender is gone."""
    if message["type"] == "http.disconnect":
        raise Broken
    if not message.get("more_body", False):
        request.scope[_COMPLETE] = True
    return cast(bytes, message.get("body", b""))


def _keep(chunk: bytes, size: int, most: int, held: UnverifiedRequest | None) -> None:
    if size > most:
        raise TooLarge
    if held is not None:
        held.hold(len(chunk))


def _unverified(request: Request) -> UnverifiedRequest:
    requests: UnverifiedRequests = request.app.state.unverified
    return requests.admitted(request)
