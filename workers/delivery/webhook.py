"""Posts reply parts to the callback URL, signed as Standard Webhooks, with the same id on every try.

The operator chose the URL, so it may be any address. What answers there is not trusted further than that: it cannot send us
elsewhere, keep us waiting, fill our memory or leave cookies with us, and nothing of its answer is read but the status.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from http.cookiejar import DefaultCookiePolicy

import httpx
import orjson

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

    def __init__(self, client: httpx.AsyncClient, settings: Webhook) -> None:
        assert settings.callback_url is not None
        self._client = client
        self._url = _checked(settings.callback_url)
        self._seconds = settings.callback_timeout_seconds
        client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
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
        request = self._client.build_request("POST", self._url, content=body, headers=headers)
        try:
            async with asyncio.timeout(self._seconds):  # httpx' own limits are for each read: a drip would have no end
                response = await self._client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Transient(type(error).__name__) from None
        except (httpx.HTTPError, TimeoutError) as error:
            raise Ambiguous(type(error).__name__) from None
        try:
            return _receipt(response)
        finally:
            await _read_away(response)


async def _read_away(response: httpx.Response) -> None:
    """The status was all that mattered. A short answer is read, so that the connection can be used again; others are cut off."""
    size = 0
    try:
        with suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                async for chunk in response.aiter_raw():  # as it comes: a small answer may unpack to a huge one
                    size += len(chunk)
                    if size > ANSWER_BYTES:
                        return
    finally:
        await response.aclose()


def _checked(url: str) -> httpx.URL:
    """The URL, if one can post there; its text is not repeated, because it may hold a password."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigurationError("WEBHOOK__CALLBACK_URL is not an http(s) address")
    return parsed


def _receipt(response: httpx.Response) -> Receipt:
    status = response.status_code
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
