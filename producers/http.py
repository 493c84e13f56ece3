"""What every HTTP route shares: bodies of bounded size and time, and errors that say little."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from shared import log, metrics
from shared.errors import Denied, MailboxFull, Malformed, PipelineError, Unavailable
from shared.settings import Settings

RETRY_AFTER_SECONDS = 5


class TooLarge(PipelineError):
    """More body than the settings allow."""


class TooSlow(PipelineError):
    """The body did not arrive in time."""


_ANSWERS: dict[type[Exception], tuple[int, str]] = {
    Denied: (401, "not authorised"),
    Malformed: (422, ""),
    TooLarge: (413, "too large"),
    TooSlow: (408, "too slow"),
    MailboxFull: (429, "too many messages are waiting in this chat"),
    Unavailable: (503, "temporarily unavailable"),
}


async def read_body(request: Request, settings: Settings) -> bytes:
    """The raw bytes of a request: TooLarge by its header or while reading, TooSlow when it drips."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > settings.max_body_bytes:
        raise TooLarge
    chunks, size = [], 0
    try:
        async with asyncio.timeout(settings.body_timeout_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > settings.max_body_bytes:
                    raise TooLarge
                chunks.append(chunk)
    except TimeoutError:
        raise TooSlow from None
    except ClientDisconnect:
        raise TooSlow from None
    return b"".join(chunks)


async def answer_error(request: Request, error: Exception) -> Response:
    """One log line and one short answer; never a stack trace, never a secret."""
    status, text = next((a for kind, a in _ANSWERS.items() if isinstance(error, kind)), (500, "internal error"))
    metrics.REFUSED.labels(type(error).__name__.lower()).inc()
    if status == 500:
        log.get().error("request failed", path=request.url.path, error=type(error).__name__, exc_info=error)
    else:
        log.get().warning("request refused", path=request.url.path, status=status, reason=type(error).__name__)
    headers = {"retry-after": str(RETRY_AFTER_SECONDS)} if status in (429, 503) else {}
    if status in (408, 413):
        headers["connection"] = "close"
    return JSONResponse({"error": text or str(error)}, status, headers)
