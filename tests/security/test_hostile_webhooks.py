"""Webhooks from strangers: whatever they send, nothing is let in without a signature, and nothing breaks."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from producers.server import body as request_body
from tests.support.door import Door, a_body, signed

InThread = Callable[[Callable[[Any], None]], Coroutine[Any, Any, None]]
fuzzing = settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
NAMES = ("id", "chat", "user", "thread", "text", "media", "reply_to", "mentioned", "sent_at", "x")
messages = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, values))
nearly = st.tuples(st.sampled_from(NAMES), values).map(lambda change: a_body_with(*change))
bodies = st.binary(max_size=2000) | (values | messages).map(json.dumps).map(str.encode) | nearly
# What a header may hold on the wire: anything but control characters.
header_text = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=300)
REPORTED = (
    "not taken: an accepted message has the same id and says something else",
)  # two random bodies may share an id
HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")


def a_body_with(name: str, value: Any) -> bytes:
    """A good message with one bad field."""
    return json.dumps({**json.loads(a_body()), name: value}).encode()


def unharmed(door: Door, response: httpx.Response, *statuses: int) -> None:
    assert response.status_code in statuses, response.text
    alarms = [line for line in door.lines_at("error", "critical") if line["event"] not in REPORTED]
    assert not alarms and not door.records
    for line in door.lines:
        assert len(repr(line)) < 1500
    door.lines.clear()


async def test_no_unsigned_body_under_any_headers_is_let_in(door: Door, in_thread: InThread) -> None:
    def check(awaited: Any) -> None:
        @fuzzing
        @given(
            bodies, st.lists(st.tuples(st.sampled_from(HEADERS) | st.just("authorization"), header_text), max_size=6)
        )
        def fuzz(body: bytes, headers: list[tuple[str, str]]) -> None:
            unharmed(door, awaited(door.post(body, headers)), 401)

        fuzz()

    await in_thread(check)
    assert await door.nothing_stored()


async def test_no_change_to_a_signed_request_is_let_in(door: Door, in_thread: InThread) -> None:
    body = a_body()

    def check(awaited: Any) -> None:
        @fuzzing
        @given(st.sampled_from(HEADERS), st.integers(0, 60), st.characters(min_codepoint=33, max_codepoint=126))
        def fuzz(name: str, at: int, char: str) -> None:
            headers = signed(body)
            at %= len(headers[name])
            changed = headers[name][:at] + char + headers[name][at + 1 :]
            if changed != headers[name]:
                unharmed(door, awaited(door.post(body, {**headers, name: changed})), 401)

        @fuzzing
        @given(st.binary(min_size=1, max_size=200))
        def fuzz_body(other: bytes) -> None:
            unharmed(door, awaited(door.post(other, signed(body))), 401)

        fuzz()
        fuzz_body()

    await in_thread(check)
    assert await door.nothing_stored()


async def test_any_body_that_is_signed_is_understood_or_recorded(door: Door, in_thread: InThread) -> None:
    seen: set[str] = set()

    def check(awaited: Any) -> None:
        @fuzzing
        @given(bodies)
        @example(a_body())
        @example(b"{}")
        def fuzz(body: bytes) -> None:
            response = awaited(door.post(body, signed(body)))
            unharmed(door, response, 200)
            seen.add(response.json()["status"])

        fuzz()

    await in_thread(check)
    assert seen >= {"recorded", "accepted"}


async def test_any_body_under_a_key_is_understood_or_422(door: Door, in_thread: InThread) -> None:
    def check(awaited: Any) -> None:
        @fuzzing
        @given(bodies)
        def fuzz(body: bytes) -> None:
            unharmed(door, awaited(door.post_api(body)), 200, 202, 422)

        fuzz()

    await in_thread(check)


async def test_headers_are_looked_at_before_a_byte_of_the_body(
    door: Door, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """Where they cannot be those of a signed request, the budget for the body is nothing."""

    def nobody_reads(*_: object) -> None:
        raise AssertionError("the body was read")

    monkeypatch.setattr(request_body, "_first", nobody_reads)
    good = signed(a_body())
    for name in HEADERS:
        for value in (None, "", "x", "v1,short", "v2," + "a" * 44, "9" * 400):
            with subtests.test(name, value=value):
                headers = {**good, name: value} if value is not None else {k: v for k, v in good.items() if k != name}
                if name == "webhook-id" and value in ("x", "v1,short", "v2," + "a" * 44):
                    continue  # an id is any word
                response = await door.post(b"x" * 100_000, {k: v for k, v in headers.items() if v is not None})
                assert response.status_code == 401
    with pytest.raises(AssertionError, match="the body was read"):  # which is how the test would notice
        await request_body.read_unverified_body(_request(door), door.pipe.settings)


def _request(door: Door) -> Any:
    from starlette.requests import Request

    app = door.client._transport.app  # type: ignore[attr-defined]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": [], "app": app, "client": ("test", 1)})


async def test_every_refusal_reads_the_same(door: Door) -> None:
    """Whatever was wrong with it, a sender learns nothing but that it is not let in."""
    body, answers = a_body(), set()
    for headers in (
        {},
        signed(body, secret=b"another secret!!"),
        signed(body, ahead=-1000),
        {**signed(body), "webhook-signature": "v1,x"},
        signed(body + b" "),
    ):
        response = await door.post(body, headers)
        answers.add((response.status_code, response.text, tuple(sorted(response.headers))))
    assert answers == {(401, '{"error":"not authorised"}', ("content-length", "content-type"))}
