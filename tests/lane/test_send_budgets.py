"""Send budgets through their wrapper, on a real Valkey: whatever the number of workers, no more leaves than may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from pydantic import SecretStr

from shared.lane_key import Destination
from shared.platforms.slack import SlackSettings
from shared.platforms.telegram import TelegramSettings
from shared.redis_servers import Servers
from shared.sending import budgets as module
from shared.sending.budgets import SendBudgets
from shared.settings import Settings
from tests.support.slack import BOT_TOKEN
from tests.support.telegram import TOKEN

NOW = timedelta(0)
HOUR = timedelta(hours=1)


class Clocked:
    """Two workers that share the budgets of one bot. Rates are so low that no time passes for them during a test."""

    def __init__(self, servers: Servers, settings: Settings) -> None:
        self.workers = [SendBudgets(servers, settings), SendBudgets(servers, settings)]
        self.servers = servers
        self._turn = 0

    @property
    def worker(self) -> SendBudgets:
        self._turn += 1
        return self.workers[self._turn % 2]

    async def take(self, chat: str) -> timedelta:
        return await self.worker.take(to(chat))

    async def takes(self, *chats: str) -> list[timedelta]:
        return [await self.take(chat) for chat in chats]

    async def pass_time(self, time: timedelta) -> None:
        """As if so much time had passed: every time that Redis keeps is earlier by it."""
        for server in self.servers.all:
            async for name in server.client.scan_iter("kt:budget:*"):
                for field, at in (await server.client.hgetall(name)).items():
                    await server.client.hset(name, field, str(float(at) - time.total_seconds() * 1000))


def to(chat: str, platform: str = "telegram", account: str = "") -> Destination:
    return Destination(platform, account, chat)


def telegram(**rates: float) -> Settings:
    return Settings(_env_file=None, telegram=TelegramSettings(token=SecretStr(TOKEN), **rates))  # type: ignore[call-arg, arg-type]


@pytest.fixture
async def servers(redis_url: str) -> AsyncIterator[Servers]:
    opened = Servers([redis_url], 4)
    yield opened
    await opened.close()


def near(wait: timedelta, expected: timedelta) -> bool:
    """A machine may be slow; then less is left to wait."""
    return expected - timedelta(minutes=5) < wait <= expected + timedelta(milliseconds=2)


async def test_a_chat_has_its_burst_at_once_and_then_its_rate_whichever_worker_asks(servers: Servers) -> None:
    clocked = Clocked(servers, telegram(chat_sends_per_minute=1 / 60))
    *burst, beyond = await clocked.takes(*["1"] * 6)
    assert burst == [NOW] * 5 and near(beyond, HOUR)
    assert await clocked.take("2") == NOW
    await clocked.pass_time(HOUR)
    assert await clocked.take("1") == NOW
    assert near(await clocked.take("1"), HOUR)


async def test_chats_that_wait_for_their_bot_get_one_time_each_in_the_order_in_which_they_came(
    servers: Servers,
) -> None:
    clocked = Clocked(servers, telegram(sends_per_second=1 / 3600))
    assert await clocked.takes(*map(str, range(10))) == [NOW] * 10
    waits = await clocked.takes("a", "b", "c")
    assert all(near(wait, HOUR * n) for n, wait in enumerate(waits, 1))
    assert near(await clocked.take("b"), 2 * HOUR)  # who asks again too early loses no place and takes no second
    await clocked.pass_time(HOUR)
    assert await clocked.take("a") == NOW
    await clocked.pass_time(HOUR)
    assert await clocked.take("b") == NOW
    assert near(await clocked.take("d"), 2 * HOUR)  # c comes first


async def test_a_place_that_nobody_came_for_is_lost(servers: Servers) -> None:
    clocked = Clocked(servers, telegram(sends_per_second=1 / 3600))
    await clocked.takes(*map(str, range(11)))
    await clocked.pass_time(HOUR + timedelta(milliseconds=module.RESERVATION_MS) * 2)
    assert near(await clocked.take("10"), HOUR)


async def test_chats_that_come_late_for_their_places_do_not_all_go_at_once_and_all_go(servers: Servers) -> None:
    """As after a pause of all workers, or of the housekeeper."""
    clocked = Clocked(servers, telegram(sends_per_second=10))
    waiting = [str(n) for n in range(60)]
    for chat in waiting:
        await clocked.take(chat)
    await clocked.pass_time(timedelta(seconds=8))
    waiting, began = waiting[-40:], time.monotonic()
    for _ in range(100):
        waits = await clocked.takes(*waiting)
        left = [chat for chat, wait in zip(waiting, waits, strict=True) if wait]
        seconds = time.monotonic() - began
        assert len(waiting) - len(left) <= 2 + 10 * seconds  # the rate, and one more at either end
        if not (waiting := left):
            return
        began = time.monotonic() - 0.5
        await clocked.pass_time(timedelta(seconds=0.5))
    raise AssertionError(f"{len(waiting)} chats never went")


async def test_a_bot_that_is_asked_to_wait_waits_in_all_chats_and_goes_on_without_a_burst(servers: Servers) -> None:
    clocked = Clocked(servers, telegram(sends_per_second=1 / 3600))
    await clocked.worker.hold(to("1"), 3 * HOUR, whole_bot=True)
    await clocked.worker.hold(to("1"), HOUR, whole_bot=True)  # shortens nothing
    waits = await clocked.takes("1", "2", "3")
    assert all(near(wait, HOUR * (3 + n)) for n, wait in enumerate(waits))
    await clocked.worker.hold(to("2"), 10 * HOUR, whole_bot=True)  # what was promised before is void
    assert near(await clocked.take("1"), 10 * HOUR)
    assert await clocked.worker.take(Destination("telegram", "second", "1")) == NOW


async def test_a_refused_bot_goes_on_with_one_chat_at_a_time_until_the_platform_takes_what_it_sends(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFUSED_WAIT", HOUR)
    monkeypatch.setattr(module, "RESERVATION_MS", HOUR.total_seconds() * 1000)
    clocked = Clocked(servers, telegram())
    await clocked.worker.refuse(to("1"))
    chats = [str(n) for n in range(20)]
    assert all(near(wait, HOUR) for wait in await clocked.takes(*chats))
    await clocked.pass_time(HOUR)
    assert (await clocked.takes(*chats)).count(NOW) == 1
    assert await clocked.worker.take_edit(to("other")) > NOW  # a change of a draft is no probe
    await clocked.pass_time(HOUR)
    [probing, idle] = clocked.workers
    assert await probing.take(to("1")) == NOW  # nobody knows what became of the first one
    await idle.answered(to("5"))  # it let nobody through
    assert (await clocked.takes(*chats)).count(NOW) == 0
    await probing.answered(to("1"))
    await clocked.pass_time(HOUR)
    assert (await clocked.takes("2", "3")).count(NOW) > 0
    assert await clocked.worker.take(to("1", account="second")) == NOW


async def test_a_chat_that_is_asked_to_wait_holds_up_no_other(servers: Servers) -> None:
    clocked = Clocked(servers, telegram())
    await clocked.worker.hold(to("1"), HOUR, whole_bot=False)
    one, two = await clocked.takes("1", "2")
    assert near(one, HOUR) and two == NOW
    assert near(await clocked.worker.take_edit(to("1")), HOUR + timedelta(seconds=2))
    await clocked.worker.free(to("1"))
    assert await clocked.take("1") == NOW


async def test_changes_of_drafts_leave_half_of_the_burst_to_replies(servers: Servers) -> None:
    clocked = Clocked(servers, telegram(chat_sends_per_minute=1 / 60))
    changes = [await clocked.worker.take_edit(to("1")) for _ in range(4)]
    assert changes[:3] == [NOW] * 3 and near(changes[3], HOUR)
    *replies, beyond = await clocked.takes("1", "1", "1")
    assert replies == [NOW] * 2 and near(beyond, HOUR)


async def test_while_a_reply_waits_for_its_bot_no_draft_is_changed(servers: Servers) -> None:
    clocked = Clocked(servers, telegram(sends_per_second=1 / 3600))
    await clocked.takes(*map(str, range(11)))
    assert near(await clocked.worker.take_edit(to("other")), 7 * HOUR)
    assert near(await clocked.take("11"), 2 * HOUR)  # and the change took nothing


async def test_changes_have_a_rate_of_their_own_where_the_platform_counts_them(servers: Servers) -> None:
    block = SlackSettings(bot_token=SecretStr(BOT_TOKEN))
    slack = SendBudgets(servers, Settings(_env_file=None, slack=block))  # type: ignore[call-arg]
    changes = [await slack.take_edit(to(f"C{n}", "slack")) for n in range(12)]
    assert changes[:10] == [NOW] * 10 and changes[11] > NOW
    assert await slack.take(to("C1", "slack")) == NOW


async def test_many_that_ask_at_once_take_no_more_than_there_is(servers: Servers) -> None:
    clocked = Clocked(servers, telegram(sends_per_second=1 / 3600))
    waits = await asyncio.gather(*(clocked.take(str(n)) for n in range(40)))
    assert waits.count(NOW) == 10
    assert len({round(wait / HOUR) for wait in waits if wait}) == 30


async def test_a_platform_without_a_budget_costs_no_call_and_budgets_at_rest_leave_nothing_behind(
    servers: Servers,
) -> None:
    budgets = SendBudgets(servers, telegram())
    assert budgets.budgeted("to:webhook:c1") is None and budgets.budgeted("to:telegram:1") == to("1")
    webhook = to("c1", "webhook")
    assert (await budgets.take(webhook), await budgets.take_edit(webhook)) == (NOW, NOW)
    await budgets.hold(webhook, HOUR, whole_bot=True)
    [server] = servers.all
    assert [name async for name in server.client.scan_iter("kt:*")] == []
    await budgets.take(to("1"))
    await budgets.hold(to("2"), HOUR, whole_bot=False)
    assert all([await server.client.pttl(name) > 0 async for name in server.client.scan_iter("kt:*")])
