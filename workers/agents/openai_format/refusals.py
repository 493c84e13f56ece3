"""What an answer other than a good one means: the table in workers/agents/llm.py, for this format.

Texts name the status and the provider's codes. The body is not repeated: providers echo keys and messages in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import orjson

from shared.errors import Outage, PipelineError, RateLimited, Transient
from workers.agents.model.contract import AccessRefused, ModelRefused, QuotaUsedUp, TooLong

PATIENCE = timedelta(seconds=10)  # after a 429 that names no time
LONGEST_WAIT = timedelta(days=1)
TOO_LONG_CODES = {"context_length_exceeded", "exceed_context_size_error"}
QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_credits"}
RATE_CODES = {"rate_limit_exceeded", "rate_limit_error", "requests", "tokens"}
AWAY_CODES = {"server_error", "overloaded_error", "service_unavailable", "internal_server_error", "api_error"}
REFUSED_CODES = {
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "content_filter",
    "not_found_error",
}
BUSY = (503, 529)
NO_ACCESS = (401, 404)  # the key, or the model: whatever is asked


def refused(status: int, headers: Mapping[str, str], body: bytes, provider: str) -> PipelineError:
    """The decision that an answer with another status than 200 asks for."""
    error: Any = None
    with suppress(orjson.JSONDecodeError):
        error = orjson.loads(body)
    codes = _codes(error.get("error") if isinstance(error, Mapping) else None)
    return _decision(status, codes, _wait(headers), provider)


def refused_in_stream(error: Any, provider: str) -> PipelineError:
    """The same for an error that came in the middle of a stream. Some providers put a status into its code."""
    status = error.get("code") if isinstance(error, Mapping) else None
    codes = _codes(error)
    if isinstance(status, int) and 400 <= status < 600:
        return _decision(status, codes, None, provider)
    if codes & (TOO_LONG_CODES | QUOTA_CODES):
        return _decision(400, codes, None, provider)
    if codes & RATE_CODES:
        return RateLimited(PATIENCE, provider=provider, is_guess=True)
    if codes & AWAY_CODES:
        status = 529 if "overloaded_error" in codes else None  # what it would have said before the stream
        return Outage(_described(None, codes), provider=provider, status=status)
    return (ModelRefused if codes & REFUSED_CODES else Transient)(_described(None, codes))


def _decision(status: int, codes: set[str], wait: timedelta | None, provider: str) -> PipelineError:
    if codes & TOO_LONG_CODES or status == 413:
        return TooLong()
    if codes & QUOTA_CODES:
        return QuotaUsedUp(_described(status, codes))
    if status == 429:
        return RateLimited(wait or PATIENCE, provider=provider, status=status, is_guess=not wait)
    if status in BUSY and wait is not None:
        return RateLimited(wait, provider=provider, status=status)
    what = _described(status, codes)
    if status >= 500:
        return Outage(what, provider=provider, status=status)
    if status in NO_ACCESS:
        return AccessRefused(what)
    return Transient(what) if status in (408, 409) else ModelRefused(what)


def _described(status: int | None, codes: set[str]) -> str:
    said = [f"HTTP {status}"] if status is not None else ["an error in the stream"]
    return "model: " + " ".join([*said, *(f"{code:.60}" for code in sorted(codes))])


def _codes(error: Any) -> set[str]:
    if not isinstance(error, Mapping):
        return set()
    return {code for code in (error.get("code"), error.get("type")) if isinstance(code, str) and code}


def _wait(headers: Mapping[str, str]) -> timedelta | None:
    """How long the provider wants us to wait, in seconds or milliseconds; None where it does not say."""
    for name, unit in (("retry-after-ms", timedelta(milliseconds=1)), ("retry-after", timedelta(seconds=1))):
        with suppress(KeyError, ValueError, OverflowError):
            if (wait := float(headers[name]) * unit) >= timedelta(0):
                return min(wait, LONGEST_WAIT)
    return None
