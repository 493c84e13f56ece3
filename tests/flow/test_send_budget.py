"""Delivery keeps to the budgets that all workers share: what has to wait is given back, and nobody waits with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from shared import keys
from shared.errors import BotRefused, Denied, RateLimited, Undeliverable
from shared.failpoints import Injected
from shared.messages import Part, Receipt
from shared.platforms.facts import Idempotency
from shared.platforms.telegram import TelegramSettings
from shared.reading.keys import KeyPhase, KeyState, state_of_key
from shared.sending import budgets
from shared.sending.budgets import REFUSED_WAIT
from shared.settings import Settings
from tests.store.books import ask
from tests.support.pipe import Rig
from tests.support.servers import Databases
from tests.support.telegram import TOKEN
from workers.delivery import deliver as delivering
from workers.delivery.deliver import Deliveries, deliver_parts

HOUR = timedelta(hours=1)
SLACK = timedelta(minutes=5)  # a machine may be slow; then less is left to wait


class Taking:
    """A platform that gives these answers one after another, then takes everything."""

    idempotency = Idempotency.NATIVE

    def __init__(self, *answers: Exception) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, str]] = []
        self.asked = 0

    async def send(self, part: Part) -> Receipt:
        self.asked += 1
        if self.answers:
            raise self.answers.pop(0)
        self.sent.append((part.to.chat, part.text))
        return Receipt("m1")


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
def settings(make_settings: Callable[..., Settings]) -> Settings:
    block = TelegramSettings(token=SecretStr(TOKEN), sends_per_second=1 / 3600, chat_sends_per_minute=1 / 60)
    return make_settings(telegram=block)


async def decide(rig: Rig, chat: str, *texts: str) -> None:
    """Replies that wait to be sent."""
    for text in texts:
        await rig.accept(text, chat=chat, platform="telegram")
        await rig.run_turns(f"agent:main:telegram:dm:{chat}")


async def deliver(rig: Rig, chat: str, sender: Taking) -> KeyState:
    """What a worker does with the chat's wake, and how the chat stands afterwards."""
    lane, place = rig.pipe.deliveries, f"to:telegram:{chat}"
    while await rig.pop(lane, place) is not None:  # wakes of earlier times, also of other chats of the partition
        pass
    await rig.expire_lease(lane, place)
    await lane.recover(place)
    _, lease = await rig.start(lane, place)
    assert lease is not None
    await deliver_parts(lease, Deliveries(rig.pipe, {"telegram": sender}))
    return await state_of_key(lane, place)


def waits(state: KeyState, time: timedelta) -> bool:
    assert state.left_ms is not None
    left = timedelta(milliseconds=state.left_ms)
    return state.state is KeyPhase.DELAYED and time - SLACK < left <= time


async def test_a_chat_whose_budget_is_spent_is_given_back_in_order_and_costs_no_attempt(rig: Rig) -> None:
    sender = Taking()
    await decide(rig, "1", *"abcdefg")
    state = await deliver(rig, "1", sender)
    assert [text for _, text in sender.sent] == [f"echo: {letter}" for letter in "abcde"]
    assert waits(state, HOUR) and state.waiting == 2
    rows = await ask(rig.pipe.store, "SELECT state, attempts, waits FROM outbox ORDER BY id")
    assert [tuple(row.values()) for row in rows[5:]] == [("pending", 0, 0)] * 2


async def test_a_bot_that_is_told_to_wait_is_left_alone_by_all_workers(rig: Rig) -> None:
    sender = Taking(RateLimited(2 * HOUR, whole_bot=True))
    for chat in ("1", "2", "3"):
        await decide(rig, chat, "hello")
    assert waits(await deliver(rig, "1", sender), 2 * HOUR)
    assert waits(await deliver(rig, "2", sender), 2 * HOUR)
    assert waits(await deliver(rig, "3", sender), 3 * HOUR)  # behind the other, not with it
    assert sender.sent == []


async def test_M10_a_platforms_wish_to_wait_is_kept_and_holds_up_no_other_chat(rig: Rig) -> None:
    sender = Taking(RateLimited(HOUR))
    for chat in ("1", "2"):
        await decide(rig, chat, "hello")
    assert waits(await deliver(rig, "1", sender), HOUR)
    assert waits(await deliver(rig, "1", sender), HOUR)  # whoever wakes it early
    assert (await deliver(rig, "2", sender)).state is KeyPhase.IDLE
    assert sender.sent == [("2", "echo: hello")]


async def pass_time(rig: Rig, time: timedelta) -> None:
    """As if so much time had passed since the budgets were asked last."""
    for server in rig.pipe.servers.all:
        async for name in server.client.scan_iter("kt:budget:*"):
            for field, at in (await server.client.hgetall(name)).items():
                await server.client.hset(name, field, str(float(at) - time.total_seconds() * 1000))


@pytest.mark.parametrize("end", ["taken", "refused for its chat", "lacks a scope"])
async def test_while_a_token_is_refused_all_chats_of_the_bot_wait_for_one_send(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(budgets, "REFUSED_WAIT", HOUR)  # so that no time passes by itself
    monkeypatch.setattr(budgets, "RESERVATION_MS", HOUR.total_seconds() * 1000)
    ends = {"refused for its chat": Undeliverable("blocked"), "lacks a scope": Denied("no scope")}
    sender = Taking(BotRefused("401"), BotRefused("401"), *([ends[end]] if end in ends else []))
    waiting = ["1", "2", "3", "4"]
    for chat in waiting:
        await decide(rig, chat, "hello")
    for probe in (1, 2, 3):  # refused, refused again, answered
        waiting = [chat for chat in waiting if (await deliver(rig, chat, sender)).state is not KeyPhase.IDLE]
        assert sender.asked == probe
        await pass_time(rig, HOUR)
    assert len(waiting) == (4 if end == "lacks a scope" else 3)
    assert not await rig.pipe.servers.of_key("telegram").client.hexists(
        keys.send_budget("telegram"), "refused"
    )  # it is known again
    for _ in range(6):  # the budget of the bot has one send in an hour
        waiting = [chat for chat in waiting if (await deliver(rig, chat, sender)).state is not KeyPhase.IDLE]
        await pass_time(rig, HOUR)
    rows = await ask(rig.pipe.store, "SELECT state, attempts - waits AS counted FROM outbox ORDER BY id")
    states = ["buried" if end == "refused for its chat" else "sent", "sent", "sent", "sent"]
    assert [(row["state"], row["counted"]) for row in rows] == [(state, 1) for state in states]


async def test_a_missing_permission_holds_up_no_other_chat(rig: Rig) -> None:
    sender = Taking(Denied("no scope"))
    for chat in ("1", "2"):
        await decide(rig, chat, "hello")
    assert waits(await deliver(rig, "1", sender), REFUSED_WAIT)
    assert (await deliver(rig, "2", sender)).state is KeyPhase.IDLE
    assert sender.sent == [("2", "echo: hello")]


@pytest.mark.parametrize(
    ("point", "refusal"), [("deliver.before_refuse", BotRefused("401")), ("deliver.before_hold", RateLimited(HOUR))]
)
async def test_a_crash_before_a_bot_or_a_chat_is_held_costs_the_reply_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, point: str, refusal: Exception
) -> None:
    def crash(reached: str) -> None:
        if reached == point:
            raise Injected(reached)

    sender = Taking(refusal)
    await decide(rig, "1", "hello")
    with monkeypatch.context() as crashing:
        crashing.setattr(delivering, "reach", crash)
        with pytest.raises(Injected):
            await deliver(rig, "1", sender)
    [row] = await ask(rig.pipe.store, "SELECT state, attempts, waits FROM outbox")
    assert tuple(row.values()) == ("pending", 1, 1)
    await deliver(rig, "1", sender)
    assert sender.sent == [("1", "echo: hello")]
