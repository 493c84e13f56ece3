"""Slack's webhook while Slack's API does not say who we are: requests are refused soon, and Slack brings them again."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import SecretStr

from producers.slack import receive
from producers.slack.receive import SlackReceiver, SlackSigned
from shared.errors import Transient, Unavailable
from shared.platforms.slack import SlackSettings
from shared.platforms.slack_api import WebApi

HEAD = SlackSigned("1", "x", is_form=False)
BODY = b'{"type":"event_callback"}'


class Silent:
    """A Slack that takes its time to answer nothing."""

    def __init__(self) -> None:
        self.asked = 0
        self.gives_up = asyncio.Event()

    async def me(self, api: object) -> object:
        self.asked += 1
        await self.gives_up.wait()
        raise Transient("no answer")


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Silent:
    silent = Silent()
    monkeypatch.setattr(WebApi, "me", lambda api: silent.me(api))
    return silent


@pytest.fixture
def receiver() -> SlackReceiver:
    return SlackReceiver(SlackSettings(bot_token=SecretStr("xoxb-1"), signing_secret=(SecretStr("a" * 20),)))


async def test_requests_that_come_while_slack_is_asked_who_we_are_wait_for_one_answer(
    slack: Silent, receiver: SlackReceiver
) -> None:
    requests = [asyncio.create_task(receiver.parse(HEAD, BODY)) for _ in range(10)]
    while not slack.asked:
        await asyncio.sleep(0)
    requests[0].cancel()  # one who hangs up takes the answer from nobody
    slack.gives_up.set()
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes[1:])
    assert slack.asked == 1


async def test_after_slack_did_not_say_who_we_are_requests_are_refused_at_once_for_a_while(
    slack: Silent, receiver: SlackReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack.gives_up.set()
    for _ in range(5):
        with pytest.raises(Unavailable, match="no answer"):
            await receiver.parse(HEAD, BODY)
    assert slack.asked == 1
    monkeypatch.setattr(receive, "ASK_AGAIN_SECONDS", 0.0)
    again = SlackReceiver(SlackSettings(bot_token=SecretStr("xoxb-1"), signing_secret=(SecretStr("a" * 20),)))
    for _ in range(2):
        with pytest.raises(Unavailable):
            await again.parse(HEAD, BODY)
    assert slack.asked == 3
