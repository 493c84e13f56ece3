"""Posts reply parts to the callback URL, signed as Standard Webhooks, with the same id on every try.

The operator chose the URL, so it may be any address. Nothing of its answer is read but the status and Retry-After.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import orjson
from yarl import URL

from shared import signing
from shared.errors import ConfigurationError, RateLimited, Transient, Undeliverable
from shared.http_client import HttpAnswer, HttpClient, open_http_client, retry_after
from shared.messages import Part, Receipt
from shared.pipeline import Pipeline
from shared.platforms.webhook import FACTS, WebhookSettings
from workers.delivery.followed import open_followed
from workers.delivery.sender import Sender

LONGEST_WAIT = timedelta(hours=1)


class WebhookSender:
    """Sending again is safe: the receiver is told to dedupe by webhook-id."""

    idempotency = FACTS.idempotency

    def __init__(self, client: HttpClient, settings: WebhookSettings) -> None:
        assert settings.callback_url is not None
        self._client = client
        self._url = _checked(settings.callback_url)
        self._key = settings.signing_keys()[0]

    async def send(self, part: Part) -> Receipt:
        to = part.to
        body = orjson.dumps(
            {
                "id": part.idempotency_key,
                "in_reply_to": part.in_reply_to,
                "session_key": part.session_key,
                "chat": {"id": to.chat, "type": part.chat_type},
                "thread": to.thread,
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
        return _receipt(await self._client.post_unread(self._url, body, headers))


@asynccontextmanager
async def open_sender(pipe: Pipeline) -> AsyncIterator[Sender]:
    """Posts to the callback URL; without one, replies are for those who follow their session."""
    settings = pipe.settings.block(WebhookSettings)
    if not settings.callback_url:
        async with open_followed(pipe) as followed:
            yield followed
        return
    async with open_callback(settings, pipe.settings.delivery_concurrency) as sender:
        yield sender


@asynccontextmanager
async def open_callback(settings: WebhookSettings, connections: int) -> AsyncIterator[WebhookSender]:
    async with open_http_client(connections=connections, seconds=settings.callback_timeout_seconds) as client:
        yield WebhookSender(client, settings)


def _checked(url: str) -> URL:
    """The URL, if one can post there; its text is not repeated, because it may hold a password."""
    try:
        parsed = URL(url)
    except ValueError:
        parsed = URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigurationError("WEBHOOK__CALLBACK_URL is not an http(s) address")
    return parsed


def _receipt(answer: HttpAnswer) -> Receipt:
    status = answer.status
    if 200 <= status < 300:
        return Receipt()
    if status in (429, 503) and "retry-after" in answer.headers:
        raise RateLimited(retry_after(answer.headers["retry-after"], longest=LONGEST_WAIT))
    if status >= 500 or status in (408, 425, 429):
        raise Transient(f"HTTP {status}")
    raise Undeliverable(f"HTTP {status}")  # redirects too: a callback does not follow anyone elsewhere
