"""A storm: a platform that answers 429 to everything for a while, and what workers that share a budget make of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from shared.door import accept
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms import PLATFORMS
from shared.platforms.telegram import TelegramSettings
from shared.platforms.webhook import WebhookSettings
from shared.settings import Settings
from tests.support.pipe import an_inbound
from tests.support.platform import Platform, open_platform
from tests.support.telegram import TOKEN, FakeTelegram, open_telegram
from tests.support.working import working

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
WORKERS = 2
OVER = 1.05  # so much more than the budget may be asked


@dataclass(frozen=True, slots=True)
class Storm:
    """How long it lasts at least, how many chats wait, for how many messages each, and what the bot may send."""

    seconds: float
    chats: int
    messages: int
    per_second: float


@dataclass(frozen=True, slots=True)
class StormOutcome:
    """What came of it."""

    requests: int
    allowed: float  # by the budget, in the time that it took
    refused: int  # answered 429
    lost: int
    chats_out_of_order: int
    others_delivered: int  # messages of another platform that were delivered before the storm ended

    @property
    def holds(self) -> bool:
        return self.requests <= OVER * self.allowed and not self.lost and not self.chats_out_of_order


async def run_storm(make: Callable[..., Settings], storm: Storm) -> StormOutcome:
    """Let every chat have messages that the storm keeps back, and see them delivered when it is over."""
    async with _field(make, storm) as (pipe, fake, other):
        fake.storms, began = True, time.monotonic()
        waiting = {str(chat): [f"m{n}" for n in range(storm.messages)] for chat in range(1, storm.chats + 1)}
        for texts in zip(*waiting.values(), strict=True):
            for chat, text in zip(waiting, texts, strict=True):
                await accept(pipe, an_inbound(text, chat=chat, platform="telegram"))
        for n in range(storm.chats):
            await accept(pipe, an_inbound("meanwhile", chat=f"c{n}"))
        await other.wait_for(lambda platform: len(platform.shown()) == storm.chats, seconds=600)
        delivered = len(other.shown())
        await asyncio.sleep(max(0.0, storm.seconds - (time.monotonic() - began)))
        refused, fake.storms = len(fake.of("sendMessage")), False
        total = storm.chats * storm.messages
        await fake.until(lambda fake: sum(map(len, fake.shown.values())) >= total, seconds=600)
        sends = [call.at for call in fake.calls if call.method == "sendMessage"]
        burst = _burst()
        expected = {int(chat): [f"echo: {text}" for text in texts] for chat, texts in waiting.items()}
        shown = {chat: fake.texts(chat) for chat in expected}
        return StormOutcome(
            requests=len(sends),
            allowed=storm.per_second * (sends[-1] - began) + burst,
            refused=refused,
            lost=sum(text not in shown[chat] for chat, texts in expected.items() for text in texts),
            chats_out_of_order=sum(shown[chat] != texts for chat, texts in expected.items()),
            others_delivered=delivered,
        )


@asynccontextmanager
async def _field(make: Callable[..., Any], storm: Storm) -> AsyncIterator[tuple[Pipeline, FakeTelegram, Platform]]:
    """Two workers with nothing in common but Redis and the database, and two platforms."""
    async with open_telegram() as fake, open_platform(SECRET) as other, AsyncExitStack() as stack:
        telegram = TelegramSettings(
            token=SecretStr(TOKEN),
            api_url=fake.url,
            sends_per_second=storm.per_second,
            chat_sends_per_minute=60 * storm.per_second,
        )
        webhook = WebhookSettings(secrets=(SecretStr(SECRET),), callback_url=other.url)
        settings = make(telegram=telegram, webhook=webhook, backoff_seconds=0.05)
        pipes = [await stack.enter_async_context(open_pipeline(settings)) for _ in range(WORKERS)]
        for pipe in pipes:
            await stack.enter_async_context(working(pipe))
        yield pipes[0], fake, other


def _burst() -> int:
    budget = PLATFORMS["telegram"].send_budget
    assert budget is not None and budget.bot is not None
    return budget.bot.burst
