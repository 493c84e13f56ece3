"""Posts reply parts to a Plainchat room. The server shows one message per key, so sending again is safe."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from urllib.parse import quote

import orjson

from shared.errors import Ambiguous, Denied, RateLimited, Transient, Undeliverable
from shared.http_client import HttpAnswer, HttpClient, open_http_client, retry_after
from shared.messages import Part, Receipt
from shared.pipeline import Pipeline
from shared.platforms.plainchat import FACTS, PlainchatSettings

LONGEST_WAIT = timedelta(hours=1)


class PlainchatSender:
    idempotency = FACTS.idempotency

    def __init__(self, client: HttpClient, settings: PlainchatSettings) -> None:
        assert settings.token is not None
        self._client = client
        self._url = settings.api_url.rstrip("/")
        self._headers = {
            "content-type": "application/json",
            "authorization": f"Bearer {settings.token.get_secret_value()}",
        }

    async def send(self, part: Part) -> Receipt:
        fields = {
            "key": part.idempotency_key,
            "text": part.text,
            "files": [media.url for media in part.media],
            "answers": part.answers if part.chat_type != "dm" and part.part == 1 else None,
        }
        url = f"{self._url}/rooms/{quote(part.to.chat, safe='')}/messages"
        return _receipt(await self._client.post(url, orjson.dumps(fields), self._headers))


@asynccontextmanager
async def open_sender(pipe: Pipeline) -> AsyncIterator[PlainchatSender | None]:
    """The sender; None where Plainchat is off."""
    settings = pipe.settings.block(PlainchatSettings)
    if not settings.on:
        yield None
        return
    connections, seconds = pipe.settings.delivery_concurrency, settings.send_timeout_seconds
    async with open_http_client(connections=connections, seconds=seconds) as client:
        yield PlainchatSender(client, settings)


def _receipt(answer: HttpAnswer) -> Receipt:
    """What the server's answer means for the delivery."""
    status = answer.status
    if status == 200:
        return Receipt(_message_id(answer.body))
    if status == 429:
        raise RateLimited(retry_after(answer.headers.get("retry-after"), longest=LONGEST_WAIT))
    if status == 401:
        raise Denied("Plainchat refuses the token")
    if status >= 500:
        raise Transient(f"HTTP {status}")
    raise Undeliverable(f"HTTP {status}")


def _message_id(body: bytes) -> str:
    try:
        id = orjson.loads(body)["id"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        id = None
    if not isinstance(id, str):
        raise Ambiguous("an answer that is none of Plainchat's")
    return id
