"""Posts reply parts to the callback URL, signed as Standard Webhooks, with the same id on every try.

The operator chose the URL, so it may be any address. What answers there is not trusted further than that: it cannot send us
elsewhere, keep us waiting, fill our memory or leave cookies with us, and nothing of its answer is read but the status.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import aiohttp
import orjson
from yarl import URL

from shared import signing
from shared.errors import Ambiguous, ConfigurationError, RateLimited, Transient, Undeliverable
from shared.messages import Part, Receipt
from shared.settings import Webhook
from workers.delivery import Idempotency

DEFAULT_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(hours=1)
ANSWER_BYTES, ANSWER_SECONDS = 64 * 1024, 1.0


class WebhookSender:
    idempotency = Idempotency.NATIVE  # the receiver is told to dedupe by webhook-id

    def __init__(self, client: aiohttp.ClientSession, settings: Webhook) -> None:
        assert settings.callback_url is not None
        self._client = client
        self._url = _checked(settings.callback_url)
        self._key = signing.decode_secret(settings.secrets[0])

    async def send(self, part: Part) -> Receipt:
        body = orjson.dumps(
            {
                "id": part.idempotency_key,
                "in_reply_to": part.in_reply_to,
                "session_key": part.session_key,
                "chat": {"id": part.source.chat, "type": part.source.chat_type},
                "thread": part.source.thread,
                "part": part.part,
                "parts": part.parts,
                "text": part.text,
                "media": part.media,
            }
        )
        now = int(time.time())
        headers = {
            "content-type": "application/json",
            "webhook-id": part.idempotency_key,
            "webhook-timestamp": str(now),
            "webhook-signature": signing.sign(self._key, part.idempotency_key, now, body),
            "idempotency-key": part.idempotency_key,
        }
        try:
            response = await self._client.post(self._url, data=body, headers=headers, allow_redirects=False)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Transient(type(error).__name__) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Ambiguous(type(error).__name__) from None
        try:
            return _receipt(response)
        finally:
            await _read_away(response)


@asynccontextmanager
async def open_sender(settings: Webhook, connections: int) -> AsyncIterator[WebhookSender]:
    limit = aiohttp.ClientTimeout(total=settings.callback_timeout_seconds)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=limit,
        auto_decompress=False,  # a small answer may unpack to a huge one
        headers={"user-agent": "keyturn"},
    ) as client:
        yield WebhookSender(client, settings)


async def _read_away(response: aiohttp.ClientResponse) -> None:
    """The status was all that mattered. A short answer is read, so that the connection can be used again; others are cut off."""
    size = 0
    try:
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while chunk := await response.content.readany():
                    size += len(chunk)
                    if size > ANSWER_BYTES:
                        break
    finally:
        response.release()  # closes the connection unless all of the answer was read


def _checked(url: str) -> URL:
    """The URL, if one can post there; its text is not repeated, because it may hold a password."""
    try:
        parsed = URL(url)
    except ValueError:
        parsed = URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigurationError("WEBHOOK__CALLBACK_URL is not an http(s) address")
    return parsed


def _receipt(response: aiohttp.ClientResponse) -> Receipt:
    status = response.status
    if 200 <= status < 300:
        return Receipt()
    if status in (429, 503) and "retry-after" in response.headers:
        raise RateLimited(_retry_after(response.headers["retry-after"]))
    if status >= 500 or status in (408, 425, 429):
        raise Transient(f"HTTP {status}")
    raise Undeliverable(f"HTTP {status}")  # redirects too: a callback does not follow anyone elsewhere


def _retry_after(text: str) -> timedelta:
    try:
        return min(max(timedelta(seconds=float(text)), timedelta(0)), LONGEST_WAIT)
    except (ValueError, OverflowError):
        return DEFAULT_WAIT
