"""Bodies of bounded size, and errors that are answered with a status and few words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import redis
from starlette.requests import Request
from starlette.responses import Response

from producers.server.body import Broken, TooLarge, TooSlow, read_body, read_unverified_body
from producers.server.http import RETRY_AFTER_SECONDS, answering
from producers.server.unverified import (
    BYTES_IN_ALL,
    IN_ALL,
    PER_ADDRESS,
    TooManyFromOneAddress,
    TooManyInAll,
    UnverifiedRequests,
)
from shared.errors import AlreadyDone, Denied, MailboxFull, Malformed, TooMany, Unavailable
from shared.settings import Settings

MOST = 10


def settings() -> Any:
    return SimpleNamespace(max_body_bytes=MOST, body_timeout_seconds=60.0)


def a_request(*chunks: bytes, **headers: str) -> Request:
    """A request whose body comes in these pieces; None: its sender goes away."""
    coming = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    coming.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Any:
        return coming.pop(0) if coming else {"type": "http.disconnect"}

    app = SimpleNamespace(state=SimpleNamespace(unverified=UnverifiedRequests()))
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": given, "app": app}
    return Request({**scope, "client": ("192.0.2.1", 1), "server": ("localhost", 80), "scheme": "http"}, receive)


def whole(content: bytes, unverified: UnverifiedRequests) -> Request:
    """A request whose body came with its head; whoever asks for more of it waits for ever."""
    pieces = asyncio.Queue[Any]()
    pieces.put_nowait({"type": "http.request", "body": content, "more_body": False})
    return waiting(pieces, unverified)


def waiting(pieces: asyncio.Queue[Any], unverified: UnverifiedRequests | None = None) -> Request:
    """A request whose body comes when somebody puts its pieces here."""
    request = a_request()
    request.app.state.unverified = unverified or UnverifiedRequests()
    return Request(request.scope, pieces.get)


@pytest.mark.parametrize("headers", [{}, {"content_length": "10"}, {"content_length": "0"}])
async def test_a_body_as_large_as_the_limit_is_read_whole(headers: dict[str, str]) -> None:
    config: Settings = settings()
    assert await read_body(a_request(b"01234", b"56789", **headers), config) == b"0123456789"


@pytest.mark.parametrize("declared", ["11", "-1", "1e1", "1" * 20, "x", "\u00b2"])
async def test_a_length_that_is_too_large_or_none_is_refused_before_a_byte_is_read(declared: str) -> None:
    request = a_request(b"small", content_length=declared)
    with pytest.raises(TooLarge):
        await read_body(request, settings())


async def test_a_body_that_grows_beyond_the_limit_is_refused_whatever_was_declared() -> None:
    with pytest.raises(TooLarge):
        await read_body(a_request(b"0123456789", b"!", content_length="5"), settings())


async def test_a_sender_that_goes_away_has_sent_no_body() -> None:
    request = a_request()
    await request.receive()  # the end of the body, as if it had never come
    with pytest.raises(Broken):
        await read_body(request, settings())


async def test_a_body_that_came_with_its_head_is_read_without_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_timer(_: float) -> None:
        raise AssertionError("a timer was set")

    monkeypatch.setattr("producers.server.body.asyncio.timeout", no_timer)
    unverified = UnverifiedRequests()
    assert await read_body(whole(b"0123456789", unverified), settings()) == b"0123456789"
    assert await read_unverified_body(whole(b"0123456789", unverified), settings()) == b"0123456789"
    assert (unverified.count, unverified.bytes, unverified.by_address) == (0, 0, {})
    with pytest.raises(TooLarge):
        await read_unverified_body(whole(b"0123456789!", unverified), settings())
    assert (unverified.count, unverified.bytes, unverified.by_address) == (0, 0, {})


async def test_a_body_that_came_with_its_head_is_refused_where_a_slow_one_would_be() -> None:
    crowded, full, heavy = UnverifiedRequests(), UnverifiedRequests(), UnverifiedRequests()
    crowded.by_address["192.0.2.1"] = PER_ADDRESS
    full.count = IN_ALL
    heavy.bytes = BYTES_IN_ALL - len(b"0123456789") + 1
    for unverified, refusal in ((crowded, TooManyFromOneAddress), (full, TooManyInAll), (heavy, TooManyInAll)):
        with pytest.raises(refusal):
            await read_unverified_body(whole(b"0123456789", unverified), settings())
    heavy.bytes -= 1
    assert await read_unverified_body(whole(b"0123456789", heavy), settings()) == b"0123456789"


async def test_a_body_that_has_to_be_waited_for_is_read_whole_and_in_order() -> None:
    pieces = asyncio.Queue[Any]()
    request = waiting(pieces)
    reading = asyncio.create_task(read_body(request, settings()))
    for piece in (b"01", b"234", b""):
        await asyncio.sleep(0)
        pieces.put_nowait({"type": "http.request", "body": piece, "more_body": bool(piece)})
    assert await reading == b"01234"


async def test_a_body_that_does_not_come_is_too_slow_also_if_its_first_piece_was_there() -> None:
    for first in ([], [{"type": "http.request", "body": b"01", "more_body": True}]):
        pieces = asyncio.Queue[Any]()
        for piece in first:
            pieces.put_nowait(piece)
        config = settings()
        config.body_timeout_seconds = 0.01
        with pytest.raises(TooSlow):
            await read_body(waiting(pieces), config)


async def test_a_refused_sender_whose_body_was_read_is_answered_at_once() -> None:
    request = whole(b"0123456789", UnverifiedRequests())

    async def endpoint(_: Request) -> Response:
        await read_body(request, settings())
        raise Denied

    async with asyncio.timeout(60):  # nothing else would come: asking for more of the body would never end
        response = await answering(endpoint)(request)
    assert response.status_code == 401 and "connection" not in response.headers


def failing(error: Exception) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(_: Request) -> Response:
        raise error

    return answering(endpoint)


@pytest.mark.parametrize(
    ("error", "status", "said", "retry_after"),
    [
        (Denied("secret"), 401, "not authorised", None),
        (Malformed("text: a string"), 422, "text: a string", None),
        (TooLarge(), 413, "too large", None),
        (TooSlow(), 408, "too slow", None),
        (Broken(), 400, "incomplete", None),
        (MailboxFull("secret"), 429, "too many messages are waiting in this chat", RETRY_AFTER_SECONDS),
        (TooMany("per minute", timedelta(seconds=7.2)), 429, "over quota", 8),
        (Unavailable("secret"), 503, "temporarily unavailable", RETRY_AFTER_SECONDS),
        (redis.ConnectionError("secret"), 503, "temporarily unavailable", RETRY_AFTER_SECONDS),
        (AlreadyDone("secret"), 503, "being accepted just now", RETRY_AFTER_SECONDS),
        (ZeroDivisionError("secret"), 500, "internal error", None),
    ],
)
async def test_an_error_is_answered_with_a_status_and_few_words(
    error: Exception, status: int, said: str, retry_after: int | None
) -> None:
    response = await failing(error)(a_request(b"rest of it"))
    assert response.status_code == status
    assert orjson.loads(response.body) == {"error": said}
    assert response.headers.get("retry-after") == (str(retry_after) if retry_after is not None else None)


async def test_a_refused_sender_is_heard_out_and_its_connection_kept_unless_it_was_slow_or_asks_first() -> None:
    heard_out = await failing(Denied())(a_request(b"rest of it"))
    assert "connection" not in heard_out.headers
    slow = await failing(TooSlow())(a_request(b"rest of it"))
    asks = await failing(Denied())(a_request(expect="100-continue"))
    gone = a_request()
    await gone.receive()
    left = await failing(Denied())(gone)
    assert [response.headers.get("connection") for response in (slow, asks, left)] == ["close"] * 3


async def test_what_is_answered_is_left_as_it_is() -> None:
    async def endpoint(_: Request) -> Response:
        return Response("fine", 201)

    response = await answering(endpoint)(a_request())
    assert (response.status_code, response.body) == (201, b"fine")
