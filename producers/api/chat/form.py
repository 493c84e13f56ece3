"""Answers in OpenAI's form: completions, the chunks of a stream, models, errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.server import http
from producers.server.http import Endpoint
from shared.live_text import TokensUsed
from shared.value import value

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
FAILED = "The message could not be answered. It was set aside for an operator to look at."
LATE = "No answer came in time."
STOPPING = "The server is being restarted."
_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


@value
class Completion:
    """What all answers to one request say of themselves."""

    id: str
    created: int  # seconds since 1970
    model: str

    def whole(self, text: str, usage: TokensUsed) -> dict[str, Any]:
        """The answer in one piece."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage_of(usage)}

    def delta(self, **said: str) -> bytes:
        """A chunk that says more."""
        return self._chunk(said, None)

    def end(self) -> bytes:
        """The chunk that says that nothing more is said."""
        return self._chunk({}, "stop")

    def usage(self, usage: TokensUsed) -> bytes:
        """The chunk for those who asked what it cost."""
        return event({**self._head("chat.completion.chunk"), "choices": [], "usage": usage_of(usage)})

    def _chunk(self, delta: Mapping[str, str], finish_reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def event(fields: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"


def usage_of(usage: TokensUsed) -> dict[str, int]:
    total = usage.input + usage.output
    return {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": total}


def model_of(id: str, created: int) -> dict[str, Any]:
    return {"id": id, "object": "model", "created": created, "owned_by": "keyturn"}


def error_of(status: int, message: str) -> dict[str, Any]:
    """An error object; clients tell errors apart by the status, and by the code."""
    kind = _KINDS.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": _CODES.get(status)}}


def refused(status: int, message: str) -> Response:
    """An error as an answer. OpenAI's clients repeat a request after a 5xx: they are told not to, because the message was
    accepted, and a repetition would be a second one."""
    headers = {"x-should-retry": "false"} if status >= 500 else None
    return JSONResponse(error_of(status, message), status, headers)


def with_errors_in_form(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its errors in OpenAI's form. What cannot be understood is 400 there."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            plain = await http.refuse(request, error)
        status = 400 if plain.status_code == 422 else plain.status_code
        kept = {name: plain.headers[name] for name in ("retry-after", "connection") if name in plain.headers}
        return JSONResponse(error_of(status, orjson.loads(plain.body)["error"]), status, kept)

    return answer
