"""Delivery: one Sender per platform."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from typing import Protocol

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

    followed = FollowedSender(pipe.servers)
    senders: dict[str, Sender] = {"local": followed, "api": followed, "webhook": followed}
    at_once = pipe.settings.delivery_concurrency
    async with AsyncExitStack() as stack:
        if pipe.settings.webhook.callback_url:
            from workers.delivery.webhook import open_sender as open_webhook

            senders["webhook"] = await stack.enter_async_context(open_webhook(pipe.settings.webhook, at_once))
        if pipe.settings.telegram.on:
            from workers.delivery.telegram import open_sender as open_telegram

            telegram = open_telegram(pipe.settings.telegram, at_once)
            senders["telegram"] = await stack.enter_async_context(telegram)
        yield senders
