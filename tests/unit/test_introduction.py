"""A webhook while the platform's API does not say who we are: requests are refused soon, and the platform brings them again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from pydantic import SecretStr

from producers import introduction
from producers.feishu.receive import FeishuReceiver
from producers.heard import Event
from producers.introduction import Introduction
from producers.slack.receive import SlackReceiver, SlackSigned
from producers.telegram.receive import TelegramReceiver
from shared.errors import Transient, Unavailable
from shared.platforms.feishu import FeishuSettings
from shared.platforms.feishu_api import OpenApi
from shared.platforms.slack import SlackSettings
from shared.platforms.slack_api import WebApi
from shared.platforms.telegram import TelegramSettings
from shared.platforms.telegram_api import BotApi
from shared.store.journal import Journal

SECRET = (SecretStr("a" * 20),)
Parse = Callable[[], Awaitable[object]]


class Silent:
    """A platform that takes its time to answer nothing."""

    def __init__(self) -> None:
        self.asked = 0
        self.gives_up = asyncio.Event()

    async def me(self, *about: object) -> Event:
        self.asked += 1
        await self.gives_up.wait()
        raise Transient("no answer")


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Silent:
    silent = Silent()
    for api in (BotApi, WebApi, OpenApi):
        monkeypatch.setattr(api, "me", silent.me)
    return silent


def _telegram() -> Parse:
    settings = TelegramSettings(token=SecretStr("1:x"), webhook_secret=SECRET)
    receiver = TelegramReceiver(settings, "", cast(Journal, None))
    return lambda: receiver.parse(None, b'{"update_id":1}')


def _slack() -> Parse:
    receiver = SlackReceiver(SlackSettings(bot_token=SecretStr("xoxb-1"), signing_secret=SECRET))
    return lambda: receiver.parse(SlackSigned("1", "x", is_form=False), b'{"type":"event_callback"}')


def _feishu() -> Parse:
    receiver = FeishuReceiver(FeishuSettings(app_id="cli_a1", app_secret=SecretStr("x"), verification_token=SECRET))
    return lambda: receiver.parse(None, b'{"schema":"2.0"}')


@pytest.fixture(params=[_telegram, _slack, _feishu], ids=["telegram", "slack", "feishu"])
def parse(request: pytest.FixtureRequest) -> Parse:
    made: Parse = request.param()
    return made


async def test_requests_that_come_while_a_platform_is_asked_who_we_are_wait_for_one_answer(
    platform: Silent, parse: Parse
) -> None:
    requests = [asyncio.ensure_future(parse()) for _ in range(10)]
    while not platform.asked:
        await asyncio.sleep(0)
    requests[0].cancel()  # one who hangs up takes the answer from nobody
    platform.gives_up.set()
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes[1:])
    assert platform.asked == 1


async def test_after_a_platform_did_not_say_who_we_are_requests_are_refused_at_once_for_a_while(
    platform: Silent, parse: Parse
) -> None:
    platform.gives_up.set()
    for _ in range(5):
        with pytest.raises(Unavailable, match="no answer"):
            await parse()
    assert platform.asked == 1


async def test_after_that_while_a_platform_is_asked_again_and_never_once_it_has_said_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(introduction, "ASK_AGAIN_SECONDS", 0.0)
    answers: list[Exception | None] = [Transient("no answer"), Transient("no answer"), None]

    async def ask() -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    asked = Introduction(ask)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await asked.require()
    for _ in range(2):
        await asked.require()
    assert not answers
