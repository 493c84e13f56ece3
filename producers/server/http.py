"""What every HTTP route shares: bodies of bounded size and time, and errors that say little."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import redis
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from producers.server.unverified import Antechamber, Crowded, Guest, Pushing
from shared import log, metrics
from shared.errors import AlreadyDone, Denied, MailboxFull, Malformed, OutOfScope, PipelineError, TooMany, Unavailable
from shared.settings import Settings

RETRY_AFTER_SECONDS = 5
LINGER_SECONDS = 5.0  # how long, and for how many bytes, a refused sender may go on sending
LINGER_BYTES = 32 * 1024 * 1024
KEEP_UP_SECONDS = 5.0  # by then an unverified body is complete, or has brought so much that it is worth the full time
KEEP_UP_BYTES = 64 * 1024

Endpoint = Callable[[Request], Awaitable[Response]]


class TooLarge(PipelineError):
    """More body than the settings allow."""


class TooSlow(PipelineError):
    """The body did not arrive in time."""


class Broken(PipelineError):
    """The sender went away before its body was complete."""


_ANSWERS: dict[type[Exception], tuple[int, str]] = {
    Denied: (401, "not authorised"),
    OutOfScope: (403, "this key may not be used for that"),
    Malformed: (422, ""),
    TooLarge: (413, "too large"),
    TooSlow: (408, "too slow"),
    Broken: (400, "incomplete"),
    Pushing: (429, "too many unfinished requests"),
    Crowded: (503, "temporarily unavailable"),
    MailboxFull: (429, "too many messages are waiting in this chat"),
    TooMany: (429, "over quota"),
    Unavailable: (503, "temporarily unavailable"),
    redis.RedisError: (503, "temporarily unavailable"),
    AlreadyDone: (503, "being accepted just now"),  # by another receiver, in another chat: a repetition finds it there
}


def answering(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its errors turned into answers here: past this point a server would print a stack trace."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            return await refuse(request, error)

    return answer


async def read_body(request: Request, settings: Settings) -> bytes:
    """The raw bytes of a request whose sender is known: TooLarge by its header or while reading, TooSlow when it drips."""
    return await _read(request, settings, settings.body_timeout_seconds, None)


async def read_unverified_body(request: Request, settings: Settings) -> bytes:
    """The same before anybody knows who sent it: Pushing or Crowded when too many such requests are open.

    Bodies up to MAX_BODY_BYTES must be readable, because the signature covers them; so their number is bounded, their bytes
    together are bounded, and one that has not brought 64 KB within 5 s must be complete by then.
    """
    antechamber: Antechamber = request.app.state.antechamber
    with antechamber.admitted(request) as guest:
        return await _read(request, settings, min(KEEP_UP_SECONDS, settings.body_timeout_seconds), guest)


async def _read(request: Request, settings: Settings, seconds: float, guest: Guest | None) -> bytes:
    declared = request.headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit() and len(declared) < 20):
        raise TooLarge
    if int(declared) > settings.max_body_bytes:
        raise TooLarge
    chunks, size = [], 0
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(seconds) as deadline:
            async for chunk in request.stream():
                size += len(chunk)
                if size > settings.max_body_bytes:
                    raise TooLarge
                if guest is not None:
                    guest.hold(len(chunk))
                    if size >= KEEP_UP_BYTES:
                        deadline.reschedule(began + settings.body_timeout_seconds)
                chunks.append(chunk)
    except TimeoutError:
        raise TooSlow from None
    except ClientDisconnect:
        raise Broken from None
    return b"".join(chunks)


def refusal(request: Request, status: int, text: str, reason: str, **about: str) -> Response:
    """One log line and one short answer."""
    metrics.REFUSED.labels(reason).inc()
    log.get().warning("request refused", path=request.url.path[:200], status=status, reason=reason, **about)
    headers = {"retry-after": str(RETRY_AFTER_SECONDS)} if status in (429, 503) else None
    return JSONResponse({"error": text}, status, headers)


async def refuse(request: Request, error: Exception) -> Response:
    """Never a stack trace, never a secret; an error that nobody expected is told to the log alone."""
    reason = type(error).__name__.lower()
    status, text = next((a for kind, a in _ANSWERS.items() if isinstance(error, kind)), (500, "internal error"))
    if status == 500:
        metrics.REFUSED.labels(reason).inc()
        log.get().error("request failed", path=request.url.path[:200], error=reason, exc_info=error)
        response: Response = JSONResponse({"error": text}, status)
    else:
        response = refusal(request, status, text or str(error), reason, detail=str(error)[:200])
    if isinstance(error, TooMany):
        response.headers["retry-after"] = str(math.ceil(error.retry_after.total_seconds()))
    if isinstance(error, TooSlow | Pushing | Crowded) or not await _heard_out(request):
        response.headers["connection"] = "close"
    return response


async def _heard_out(request: Request) -> bool:
    """Read away what is still being sent, within limits: a sender cut off in the middle would not see our answer."""
    if "expect" in request.headers:
        return False  # it asks before it sends
    size = 0
    antechamber: Antechamber = request.app.state.antechamber
    try:
        with antechamber.admitted(request):
            async with asyncio.timeout(LINGER_SECONDS):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > LINGER_BYTES:
                        return False
    except (TimeoutError, ClientDisconnect, Pushing, Crowded):
        return False
    except RuntimeError:  # it was all read before
        return True
    return True
