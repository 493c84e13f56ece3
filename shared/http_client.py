"""The one HTTP client for everything that goes out. What answers can do no more than answer.

It cannot send us elsewhere, keep us waiting, fill our memory or leave cookies with us. Errors say what a caller may do:
Unreachable means that the request never left, Ambiguous that it may have been carried out. Both name the host at most: the rest
of an address may hold a key.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from pydantic import SecretStr
from yarl import URL

from shared.errors import Ambiguous, Denied, RateLimited, Silent, Transient, Unreachable
from shared.path_secret import path_secret
from shared.value import value
from shared.websocket import FRAME_BYTES, WebSocket

ANSWER_BYTES = 32 * 1024 * 1024  # of an answer that somebody reads
IGNORED_BYTES, IGNORED_SECONDS = 64 * 1024, 1.0  # of one that nobody reads: then its connection is used again
END_SECONDS = 0.05  # for the end of a stream whose last event has come
DEFAULT_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(hours=1)  # that a refused connection makes us wait
_NEVER_LEFT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)


@value
class HttpAnswer:
    """An answer as it came: not unpacked, no redirect followed."""

    status: int
    headers: Mapping[str, str]  # by any spelling
    body: bytes = b""


class HttpStream:
    """An answer whose body is read as it comes."""

    __slots__ = ("_paused", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._paused: tuple[asyncio.Transport, asyncio.TimerHandle] | None = None  # and what ends the rest
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def chunks(self, most: int | None = ANSWER_BYTES) -> AsyncIterator[bytes]:
        """What has come since the last chunk, until the end. Ambiguous where it is cut off or longer than `most`, Silent
        where nothing comes."""
        size = 0
        try:
            while chunk := await self._response.content.readany():
                size += len(chunk)
                if most is not None and size > most:
                    raise Ambiguous("the answer is too long")
                yield chunk
        except _ERRORS as error:
            raise _outcome(error) from None

    def rest(self, seconds: float) -> None:
        """Leave what comes in the connection for so long. Then it is one chunk, and waking up for each part of it is saved."""
        connection = self._response.connection
        transport = connection.transport if connection is not None else None
        if transport is None or transport.is_closing() or not transport.is_reading():
            return  # all of it has come; or aiohttp has more than was read yet, and reads no further by itself
        transport.pause_reading()
        self._paused = transport, asyncio.get_running_loop().call_later(seconds, self.go_on)

    def go_on(self) -> None:
        """End a rest. May be repeated."""
        if self._paused is None:
            return
        (transport, timer), self._paused = self._paused, None
        timer.cancel()
        if not transport.is_closing():
            transport.resume_reading()

    async def drain(self) -> None:
        """Read the end of an answer that has said all, so that its connection is used again. Waits for a moment only."""
        if not self._response.content.at_eof():
            with suppress(*_ERRORS):
                async with asyncio.timeout(END_SECONDS):
                    await self._response.content.readany()

    async def body(self) -> bytes:
        """All of it. Raises as `chunks` does."""
        return b"".join([chunk async for chunk in self.chunks()])


class HttpClient:
    """Connections that are kept, and shared by all who post through it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(
        self, url: URL | str, body: bytes, headers: Mapping[str, str], *, seconds: float | None = None
    ) -> HttpAnswer:
        """`request` with POST."""
        return await self.request("POST", url, body, headers, seconds=seconds)

    async def request(
        self,
        method: str,
        url: URL | str,
        body: bytes | AsyncIterable[bytes],
        headers: Mapping[str, str],
        *,
        seconds: float | None = None,
    ) -> HttpAnswer:
        """Ask once and read the answer: Unreachable if the request never left, Ambiguous if no whole answer came.

        `seconds` is the time for all of it, where it is not the client's own. A GET may be asked again, whatever came of it.
        A body that is read while it is sent needs its length among the headers. A Transient error of the body itself is raised
        as it is: the request was cut off before its end.
        """
        limit, sent = self._session.timeout if seconds is None else _limit(seconds), _SentBody(body)
        try:
            async with self._session.request(
                method, url, data=sent.data, headers=headers, allow_redirects=False, timeout=limit
            ) as response:
                return HttpAnswer(response.status, response.headers, await _read(response))
        except _ERRORS as error:
            raise sent.error or _outcome(error) from None

    async def post_unread(self, url: URL | str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """The same where status and headers are all that matters: what else the answer holds is read away."""
        try:
            response = await self._session.post(url, data=body, headers=headers, allow_redirects=False)
        except _ERRORS as error:
            raise _outcome(error) from None
        await _read_away(response)
        return HttpAnswer(response.status, response.headers)

    @asynccontextmanager
    async def post_stream(
        self,
        url: URL | str,
        body: bytes | AsyncIterable[bytes],
        headers: Mapping[str, str],
        *,
        silent_seconds: float,
    ) -> AsyncIterator[HttpStream]:
        """Post, and read the answer as it comes, for as long as something comes at least every `silent_seconds`. Unreachable
        if the request never left, Silent if no answer began in that time, Ambiguous if the connection was cut. Errors of the body
        as in `request`."""
        limit = aiohttp.ClientTimeout(connect=self._session.timeout.connect, sock_read=silent_seconds)
        sent = _SentBody(body)
        try:
            response = await self._session.post(
                url, data=sent.data, headers=headers, allow_redirects=False, timeout=limit
            )
        except _ERRORS as error:
            raise sent.error or _outcome(error) from None
        stream = HttpStream(response)
        try:
            yield stream
        finally:
            stream.go_on()  # the connection may be used again
            response.release()  # closes the connection unless all of the answer was read

    @asynccontextmanager
    async def get_stream(
        self, url: URL | str, headers: Mapping[str, str], *, seconds: float
    ) -> AsyncIterator[HttpStream]:
        """Ask, and read the answer as it comes, all of it within `seconds`. No redirect is followed. Raises as `request`."""
        limit = _limit(seconds)
        try:
            response = await self._session.get(url, headers=headers, allow_redirects=False, timeout=limit)
        except _ERRORS as error:
            raise _outcome(error) from None
        try:
            yield HttpStream(response)
        finally:
            response.close()  # what was not read is not wanted

    @asynccontextmanager
    async def websocket(
        self, url: URL | str, headers: Mapping[str, str], *, ping_seconds: float | None = None
    ) -> AsyncIterator[WebSocket]:
        """Hold a websocket until the block ends. Raises Denied when we are refused, RateLimited when asked to wait, and
        Transient otherwise. With `ping_seconds` a server that does not answer pings counts as gone."""
        try:
            async with asyncio.timeout(self._session.timeout.total):
                socket = await self._session.ws_connect(
                    url, headers=headers, heartbeat=ping_seconds, max_msg_size=FRAME_BYTES
                )
        except aiohttp.WSServerHandshakeError as error:
            raise _handshake(error.status, error.headers) from None
        except _ERRORS as error:
            raise Transient(_words(error)) from None
        try:
            yield WebSocket(socket)
        finally:
            await socket.close()

    @asynccontextmanager
    async def lines(
        self, url: URL | str, headers: Mapping[str, str], *, silent_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Hold an answer that never ends, such as server-sent events, and give its lines without their ends. Raises as
        `websocket` does; Transient too when it ends, or nothing comes for `silent_seconds`."""
        limit = aiohttp.ClientTimeout(connect=self._session.timeout.connect, sock_read=silent_seconds)
        try:
            async with self._session.get(url, headers=headers, allow_redirects=False, timeout=limit) as response:
                if response.status != 200:
                    raise _handshake(response.status, response.headers)
                yield _lines(response.content)
        except _ERRORS as error:
            raise Transient(_words(error)) from None


class _SentBody:
    """What a request sends. `error` is why its own source broke off in the middle, where that is an error that passes."""

    def __init__(self, body: bytes | AsyncIterable[bytes]) -> None:
        self.error: Transient | None = None
        self.data = (body or None) if isinstance(body, bytes) else self._read(body)

    async def _read(self, body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        try:
            async for chunk in body:
                yield chunk
        except Transient as error:
            self.error = error
            raise


async def hold_http_client(
    *,
    connections: int,
    seconds: float,
    secret: tuple[str, SecretStr] | None = None,
    proxy: str | None = None,
    connector: aiohttp.TCPConnector | None = None,
) -> AsyncGenerator[HttpClient, None]:
    """A client with so many connections at once (0: any number), whose requests take so long at most.

    `secret` is for APIs that want their key in the path: see shared/path_secret.py. `connector` makes the connections, where
    there is something to check about them.

    Who keeps the generator itself, for as long as its event loop runs, leaves the closing to the loop. It must not stand in
    another generator then: the loop closes all of them at once, and the inner one would be closed twice.
    """
    async with aiohttp.ClientSession(
        connector=connector or aiohttp.TCPConnector(limit=connections),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=_limit(seconds),
        auto_decompress=False,  # a small answer may unpack to a huge one
        headers={"user-agent": "keyturn", "accept-encoding": "identity"},
        request_class=path_secret(*secret) if secret is not None else aiohttp.ClientRequest,
        trace_configs=[_no_redirects()],
        proxy=proxy,
    ) as session:
        yield HttpClient(session)


open_http_client = asynccontextmanager(hold_http_client)


def retry_after(*said: Any, longest: timedelta) -> timedelta:
    """The wait that the first of these asks for, in seconds or until a date: never negative, never longer than `longest`."""
    for asked in said:
        for read in (_of_seconds, _until_date):
            with suppress(TypeError, ValueError, OverflowError):
                return min(max(read(asked), timedelta(0)), longest)
    return DEFAULT_WAIT


def _of_seconds(said: Any) -> timedelta:
    return timedelta(seconds=float(said))


def _until_date(said: Any) -> timedelta:
    """The other form that HTTP has for it: `Wed, 21 Oct 2026 07:28:00 GMT`."""
    if not isinstance(said, str):
        raise TypeError
    at = parsedate_to_datetime(said)
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - datetime.now(UTC)


def _outcome(error: BaseException) -> Transient:
    """Whether the request left before it failed."""
    if isinstance(error, _NEVER_LEFT):
        return Unreachable(_words(error))
    kind = Silent if isinstance(error, TimeoutError) else Ambiguous
    return kind(_words(error))


def _words(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        number, said = error.os_error.errno, error.os_error.strerror
        reason = os.strerror(number) if number is not None and number > 0 else said
        return f"no connection to {error.host}:{error.port} ({reason or type(error).__name__})"
    return type(error).__name__


def _limit(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, connect=seconds / 2)


def _handshake(status: int, headers: Mapping[str, str] | None) -> Transient | Denied:
    """What it means that a connection which we wanted to hold was answered with a status."""
    if status in (401, 403):
        return Denied(f"HTTP {status}")
    if status == 429:
        return RateLimited(retry_after((headers or {}).get("retry-after"), longest=LONGEST_WAIT))
    return Transient(f"HTTP {status}")


def _no_redirects() -> aiohttp.TraceConfig:
    """For websockets, whose handshake aiohttp would follow elsewhere."""

    async def refuse(*_: Any) -> None:
        raise aiohttp.ClientError("redirected")

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    while chunk := await content.readany():
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > FRAME_BYTES:
            raise Transient("a line without end")
        for line in whole:
            yield line.removesuffix(b"\r")
    raise Transient("the answer ended")


async def _read(response: aiohttp.ClientResponse) -> bytes:
    chunks, size = [], 0
    while chunk := await response.content.readany():
        size += len(chunk)
        if size > ANSWER_BYTES:
            raise Ambiguous("the answer is too long")
        chunks.append(chunk)
    return b"".join(chunks)


async def _read_away(response: aiohttp.ClientResponse) -> None:
    """A short answer is read, so that the connection can be used again; others are cut off."""
    size = 0
    try:
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(IGNORED_SECONDS):
                while chunk := await response.content.readany():
                    size += len(chunk)
                    if size > IGNORED_BYTES:
                        break
    finally:
        response.release()  # closes the connection unless all of the answer was read
