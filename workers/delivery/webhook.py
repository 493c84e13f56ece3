"""Posts reply parts to the callback URL, signed as Standard Webhooks, with the same id on every try."""

from __future__ import annotations

import time
from datetime import timedelta

import httpx
import orjson

from shared import signing
from shared.errors import Ambiguous, RateLimited, Transient, Undeliverable
from shared.messages import Part, Receipt
from shared.settings import Webhook
from workers.delivery import Idempotency

DEFAULT_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(hours=1)


class WebhookSender:
    idempotency = Idempotency.NATIVE  # the receiver is told to dedupe by webhook-id

    def __init__(self, client: httpx.AsyncClient, settings: Webhook) -> None:
        assert settings.callback_url is not None
        self._client = client
        self._url = settings.callback_url
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
            response = await self._client.post(self._url, content=body, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Transient(type(error).__name__) from None
        except httpx.HTTPError as error:
            raise Ambiguous(type(error).__name__) from None
        return _receipt(response)


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
