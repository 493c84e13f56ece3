"""What every HTTP route shares: answers, and errors that say little."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import redis
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.server.answer import WholeAnswer
from producers.server.body import Broken, TooLarge, TooSlow, header_values, read_away
from producers.server.unverified import TooManyFromOneAddress, TooManyInAll
from shared import log, metrics
from shared.errors import AlreadyDone, Denied, MailboxFull, Malformed, OutOfScope, TooMany, Unavailable

RETRY_AFTER_SECONDS = 5

Endpoint = Callable[[Request], Awaitable[Response]]


_ANSWERS: dict[type[Exception], tuple[int, str]] = {
    Denied: (401, "not authorised"),
    OutOfScope: (403, "this key may not be used for that"),
    Malformed: (422, ""),
    TooLarge: (413, ""),
    TooSlow: (408, "too slow"),
    Broken: (400, "incomplete"),
    TooManyFromOneAddress: (429, "too many unfinished requests"),
    TooManyInAll: (503, "temporarily unavailable"),
    MailboxFull: (429, "too many messages are waiting in this chat"),
    TooMany: (429, "over quota"),
    Unavailable: (503, "temporarily unavailable"),
    redis.RedisError: (503, "temporarily unavailable"),
    AlreadyDone: (503, "being accepted just now"),  # by another receiver, in another chat: a repetition finds it there
}


def json_answer(content: Any, status: int = 200) -> Response:
    return WholeAnswer(orjson.dumps(content), status, "application/json")


def answering(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its errors turned into answers here: past this point a server would print a stack trace."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            return await refuse(request, error)

    return answer


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
    if isinstance(error, TooSlow | TooManyFromOneAddress | TooManyInAll) or not await _heard_out(request):
        response.headers["connection"] = "close"
    return response


async def _heard_out(request: Request) -> bool:
    """Whether the sender has sent all that it wants to: one that is cut off in the middle would not see our answer."""
    asks_first = bool(header_values(request, "expect"))  # and then it sends nothing
    return not asks_first and await read_away(request)
