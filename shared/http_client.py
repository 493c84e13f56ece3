"""The one HTTP client for everything that goes out. What answers can do no more than answer.

It cannot send us elsewhere, keep us waiting, fill our memory or leave cookies with us. Errors say what a caller may do:
Transient means that the request never left, Ambiguous that it may have been carried out. Neither quotes an address.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import aiohttp
from pydantic import SecretStr
from yarl import URL

from shared.errors import Ambiguous, Transient
from shared.path_secret import path_secret
from shared.value import value

ANSWER_BYTES = 32 * 1024 * 1024  # of an answer that somebody reads
IGNORED_BYTES, IGNORED_SECONDS = 64 * 1024, 1.0  # of one that nobody reads: then its connection is used again
DEFAULT_WAIT = timedelta(seconds=5)
_NEVER_LEFT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)


@value
class HttpAnswer:
    """An answer as it came: not unpacked, no redirect followed."""

    status: int
    headers: Mapping[str, str]  # by any spelling
    body: bytes = b""


class HttpClient:
    """Connections that are kept, and shared by all who post through it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(
        self, url: URL | str, body: bytes, headers: Mapping[str, str], *, seconds: float | None = None
    ) -> HttpAnswer:
        """Post once and read the answer: Transient if the request never left, Ambiguous if no whole answer came.

        `seconds` is the time for all of it, where it is not the client's own.
        """
        limit = self._session.timeout if seconds is None else _limit(seconds)
        try:
            async with self._session.post(
                url, data=body, headers=headers, allow_redirects=False, timeout=limit
            ) as response:
                return HttpAnswer(response.status, response.headers, await _read(response))
        except _ERRORS as error:
            raise _outcome(error) from None

    async def post_unread(self, url: URL | str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """The same where status and headers are all that matters: what else the answer holds is read away."""
        try:
            response = await self._session.post(url, data=body, headers=headers, allow_redirects=False)
        except _ERRORS as error:
            raise _outcome(error) from None
        await _read_away(response)
        return HttpAnswer(response.status, response.headers)


@asynccontextmanager
async def open_http_client(
    *, connections: int, seconds: float, secret: tuple[str, SecretStr] | None = None
) -> AsyncIterator[HttpClient]:
    """A client with so many connections at once, whose requests take so long at most.

    `secret` is for APIs that want their key in the path: see shared/path_secret.py.
    """
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=_limit(seconds),
        auto_decompress=False,  # a small answer may unpack to a huge one
        headers={"user-agent": "keyturn", "accept-encoding": "identity"},
        request_class=path_secret(*secret) if secret is not None else aiohttp.ClientRequest,
    ) as session:
        yield HttpClient(session)


def retry_after(*said: Any, longest: timedelta) -> timedelta:
    """The wait that the first of these asks for in seconds: never negative, never longer than `longest`."""
    for seconds in said:
        with suppress(TypeError, ValueError, OverflowError):
            return min(max(timedelta(seconds=float(seconds)), timedelta(0)), longest)
    return DEFAULT_WAIT


def _outcome(error: BaseException) -> Transient:
    """Whether the request left before it failed. The text quotes no address: the path may hold a key."""
    kind = Transient if isinstance(error, _NEVER_LEFT) else Ambiguous
    return kind(type(error).__name__)


def _limit(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, connect=seconds / 2)


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
