"""What a provider of the chat-completions format says instead of an answer decides what becomes of the turn."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson
import pytest

from shared.errors import Outage, PipelineError, RateLimited, Transient
from workers.agents.model.contract import AccessRefused, ModelRefused, QuotaUsedUp, TooLong
from workers.agents.openai_format.refusals import LONGEST_WAIT, PATIENCE, refused, refused_in_stream


def said(status: int, code: Any = None, kind: Any = None, **headers: str) -> PipelineError:
    body = orjson.dumps({"error": {"code": code, "type": kind, "message": "secret words"}})
    return refused(status, {name.replace("_", "-"): value for name, value in headers.items()}, body, "acme")


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, None, ModelRefused),
        (401, "invalid_api_key", AccessRefused),
        (404, "model_not_found", AccessRefused),
        (408, None, Transient),
        (409, None, Transient),
        (410, None, ModelRefused),
        (413, None, TooLong),
        (400, "context_length_exceeded", TooLong),
        (400, "exceed_context_size_error", TooLong),
        (500, "context_length_exceeded", TooLong),
        (429, "insufficient_quota", QuotaUsedUp),
        (429, "billing_not_active", QuotaUsedUp),
        (429, "rate_limit_exceeded", RateLimited),
        (429, None, RateLimited),
        (499, None, ModelRefused),
        (500, "server_error", Outage),
        (503, None, Outage),
        (529, None, Outage),
    ],
)
def test_a_status_and_its_code_decide(status: int, code: str | None, expected: type[PipelineError]) -> None:
    error = said(status, code)
    assert type(error) is expected
    if isinstance(error, Outage):
        assert (error.provider, error.status) == ("acme", status)


def test_a_code_counts_wherever_the_provider_puts_it() -> None:
    assert isinstance(said(400, "400", "exceed_context_size_error"), TooLong)
    assert isinstance(said(429, 17, "insufficient_quota"), QuotaUsedUp)


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'{"error":"words"}', b'{"error":{"code":7,"type":null}}'])
def test_a_body_that_says_nothing_leaves_the_decision_to_the_status(body: bytes) -> None:
    assert isinstance(refused(500, {}, body, "acme"), Outage)
    assert str(refused(400, {}, body, "acme")) == "model: HTTP 400"


def test_an_error_names_status_and_codes_and_repeats_nothing_else() -> None:
    assert str(said(400, "b" * 61, "a")) == f"model: HTTP 400 a {'b' * 60}"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, PATIENCE),
        ({"retry_after": "7"}, timedelta(seconds=7)),
        ({"retry_after_ms": "1500", "retry_after": "7"}, timedelta(seconds=1.5)),
        ({"retry_after_ms": "soon", "retry_after": "7"}, timedelta(seconds=7)),
        ({"retry_after": "-1"}, PATIENCE),
        ({"retry_after": "nan"}, PATIENCE),
        ({"retry_after": "1e300"}, PATIENCE),
        ({"retry_after": "86401"}, LONGEST_WAIT),
        ({"retry_after": "tomorrow"}, PATIENCE),
    ],
)
def test_a_wait_is_the_providers_and_else_ours(headers: dict[str, str], expected: timedelta) -> None:
    error = said(429, **headers)
    assert isinstance(error, RateLimited) and error.retry_after == expected
    assert (error.provider, error.status) == ("acme", 429)


@pytest.mark.parametrize("status", [503, 529])
def test_a_busy_provider_that_names_a_time_is_given_it(status: int) -> None:
    error = said(status, retry_after="3")
    assert isinstance(error, RateLimited)
    assert (error.retry_after, error.provider, error.status) == (timedelta(seconds=3), "acme", status)


def test_a_broken_provider_that_names_a_time_is_an_outage_all_the_same() -> None:
    assert type(said(500, retry_after="3")) is Outage


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": 400}, ModelRefused),
        ({"code": 429}, RateLimited),
        ({"code": 599}, Outage),
        ({"code": 399, "type": "server_error"}, Outage),
        ({"code": 600, "type": "rate_limit_error"}, RateLimited),
        ({"code": "context_length_exceeded"}, TooLong),
        ({"code": "insufficient_quota"}, QuotaUsedUp),
        ({"type": "rate_limit_error"}, RateLimited),
        ({"code": "requests"}, RateLimited),
        ({"type": "overloaded_error"}, Outage),
        ({"type": "api_error"}, Outage),
        ({"type": "invalid_request_error"}, ModelRefused),
        ({"type": "content_filter"}, ModelRefused),
        ({"type": "unheard_of"}, Transient),
        ({"code": True}, Transient),
        ("words", Transient),
    ],
)
def test_an_error_in_a_stream_decides_by_its_status_or_its_codes(error: Any, expected: type[PipelineError]) -> None:
    decision = refused_in_stream(error, "acme")
    assert type(decision) is expected
    if isinstance(decision, Outage):
        assert decision.provider == "acme"
    if isinstance(decision, RateLimited):
        assert decision.retry_after == PATIENCE


def test_an_error_in_a_stream_is_named_as_one() -> None:
    assert str(refused_in_stream({"type": "server_error"}, "acme")) == "model: an error in the stream server_error"
