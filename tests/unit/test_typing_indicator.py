"""The sign that an answer is coming: a bot that its platform refuses is left alone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from shared.address import Address
from shared.errors import BotRefused
from shared.messages import Inbound
from shared.platforms.facts import Idempotency
from tests.support.pipe import an_inbound
from workers.delivery import typing_indicator
from workers.delivery.sender import Sender
from workers.delivery.typing_indicator import TypingIndicator


class Refusing:
    """Refuses the bot of one account."""

    idempotency = Idempotency.NONE

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.news = asyncio.Event()

    async def send(self, part: Any) -> Any:
        raise NotImplementedError

    async def typing(self, to: Address) -> None:
        self.asked.append(to.account)
        self.news.set()
        if to.account == "refused":
            raise BotRefused("the token is no good")


def said_to(account: str) -> Inbound:
    return an_inbound("hello", platform="telegram", account=account)


async def shown(indicator: TypingIndicator, sender: Refusing, *accounts: str, signs: int) -> list[str]:
    """The bots that were asked to show it while these chats waited, until so many signs were shown."""
    sender.asked.clear()
    tasks = [indicator.start(said_to(account)) for account in accounts]
    async with asyncio.timeout(60):
        while len(sender.asked) < signs:
            sender.news.clear()
            await sender.news.wait()
    for task in tasks:
        assert task is not None
        task.cancel()
    return sender.asked


async def test_a_bot_that_is_refused_is_asked_to_show_nothing_for_a_while_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(typing_indicator, "FIRST_AFTER_SECONDS", 0.0)
    sender = Refusing()
    indicator = TypingIndicator({"telegram": cast(Sender, sender)})
    indicator._shows = dict.fromkeys(indicator._shows, (cast(Any, sender), 0.01))
    asked = await shown(indicator, sender, "refused", "good", signs=6)
    assert asked.count("refused") == 1
    assert set(await shown(indicator, sender, "refused", "good", signs=3)) == {"good"}  # another chat of the same bot
    monkeypatch.setattr(typing_indicator, "REFUSED_WAIT", timedelta(0))
    indicator._refused_until.clear()
    assert (await shown(indicator, sender, "refused", signs=3)).count("refused") == 3  # it is asked again later
