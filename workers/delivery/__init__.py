"""Delivery: one Sender per platform."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from typing import Protocol

import httpx

from shared.messages import Part, Receipt
from shared.pipeline import Pipeline


class Idempotency(Enum):
    """What happens when the same part is sent twice."""

    NATIVE = "native"  # the platform recognises the key: sending again is safe
    NONE = "none"  # the chat sees it twice


class Sender(Protocol):
    idempotency: Idempotency

    async def send(self, part: Part) -> Receipt:
        """Send once and return the receipt; raise RateLimited, Ambiguous, Transient or Undeliverable."""


@asynccontextmanager
async def open_senders(pipe: Pipeline) -> AsyncIterator[Mapping[str, Sender]]:
    """The senders that the settings allow, by platform."""
    from workers.delivery.followed import FollowedSender
    from workers.delivery.telegram import open_sender as open_telegram
    from workers.delivery.webhook import WebhookSender

    followed = FollowedSender(pipe.servers)
    senders: dict[str, Sender] = {"local": followed, "api": followed, "webhook": followed}
    timeout = pipe.settings.webhook.callback_timeout_seconds
    limits = httpx.Limits(max_connections=pipe.settings.concurrency, max_keepalive_connections=100)
    async with (
        httpx.AsyncClient(timeout=timeout, limits=limits, follow_redirects=False, trust_env=False) as client,
        AsyncExitStack() as stack,
    ):
        if pipe.settings.webhook.callback_url:
            senders["webhook"] = WebhookSender(client, pipe.settings.webhook)
        if pipe.settings.telegram.on:
            telegram = open_telegram(pipe.settings.telegram, pipe.settings.concurrency)
            senders["telegram"] = await stack.enter_async_context(telegram)
        yield senders
