"""The sign that an answer is coming: a bot that its platform refuses is left alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.address import Address
from shared.errors import BotRefused
from shared.messages import Inbound
from shared.platforms import PLATFORMS
from shared.platforms.facts import Idempotency
from shared.sending.budgets import REFUSED_WAIT
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


class Typing:
    idempotency = Idempotency.NONE

    def __init__(self) -> None:
        self.shown: list[tuple[str, ...]] = []

    async def send(self, part: Any) -> Any:
        raise NotImplementedError

    async def typing(self, to: Address) -> None:
        self.shown.append((to.platform, to.chat))


class Reading:
    idempotency = Idempotency.NONE

    def __init__(self) -> None:
        self.shown: list[tuple[str, ...]] = []

    async def send(self, part: Any) -> Any:
        raise NotImplementedError

    async def read(self, to: Address, message: str) -> None:
        self.shown.append((to.platform, to.chat, message))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, in seconds. They are over at once."""
    made, sleep = list[float](), asyncio.sleep

    async def noted(seconds: float) -> None:
        made.append(seconds)
        await sleep(0)

    quick = SimpleNamespace(sleep=noted, create_task=asyncio.create_task, Task=asyncio.Task)
    monkeypatch.setattr(typing_indicator, "asyncio", quick)
    return made


@pytest.mark.parametrize(
    ("platform", "sender", "message", "sign"),
    [
        ("telegram", Typing(), None, ("telegram", "c1")),
        ("whatsapp", Reading(), "wamid.1", ("whatsapp", "c1", "wamid.1")),
        ("whatsapp", Reading(), None, None),  # nothing that could be marked as read
    ],
)
async def test_the_sign_is_shown_a_moment_after_the_message_and_again_before_it_vanishes(
    pauses: list[float], platform: str, sender: Any, message: str | None, sign: tuple[str, ...] | None
) -> None:
    said = replace(an_inbound("hello", platform=platform), message=message)
    task = TypingIndicator({platform: sender}).start(said)
    assert task is not None
    while len(pauses) < 4:
        await asyncio.sleep(0)
    task.cancel()
    assert sender.shown[:3] == ([sign] * 3 if sign is not None else [])
    every = PLATFORMS[platform].typing_seconds
    assert pauses[:4] == [typing_indicator.FIRST_AFTER_SECONDS, every, every, every]


@pytest.mark.parametrize(
    ("platform", "sender"),
    [
        ("slack", Typing()),  # a platform that shows none
        ("telegram", object()),  # a sender that cannot
        ("telegram", None),
    ],
)
async def test_where_nothing_can_be_shown_nothing_is_started(platform: str, sender: Any) -> None:
    senders = {platform: sender} if sender is not None else {}
    assert TypingIndicator(senders).start(an_inbound("hello", platform=platform)) is None


async def test_a_refused_bot_is_asked_again_when_its_time_is_over(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(typing_indicator, "time", SimpleNamespace(monotonic=lambda: clock.now))
    sender = Refusing()
    task = TypingIndicator({"telegram": cast(Sender, sender)}).start(said_to("refused"))
    assert task is not None

    async def looks(count: int) -> None:
        until = len(pauses) + count
        while len(pauses) < until:
            await asyncio.sleep(0)

    await looks(5)
    assert len(sender.asked) == 1
    clock.now += REFUSED_WAIT.total_seconds() - 1
    await looks(5)
    assert len(sender.asked) == 1
    clock.now += 1
    await looks(5)
    assert len(sender.asked) == 2
    task.cancel()
