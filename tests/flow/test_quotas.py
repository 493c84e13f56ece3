"""Quotas: what is beyond one is refused, said once, and recorded; nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from shared import keys, signing
from shared.failpoints import Injected
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.api import ApiSettings
from shared.platforms.webhook import WebhookSettings
from shared.settings import QuotaSettings, Settings
from tests.conftest import WEBHOOK_SECRET
from tests.flow.test_telegram import ANN, SECRET, Hook, block, said
from tests.store.books import ask as rows_of
from tests.support.door import Door, a_body, open_door, signed
from tests.support.outage import ValkeyOutage
from tests.support.pipe import Rig
from tests.support.telegram import FakeTelegram, open_telegram
from tests.support.working import working

MakeSettings = Callable[..., Settings]
OTHER_SECRET = "whsec_b3RoZXItb3RoZXItb3RoZXItb3RoZXI="


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with open_telegram() as opened:
        yield opened


@asynccontextmanager
async def telegram(make_settings: MakeSettings, fake: FakeTelegram, **quota: int) -> AsyncIterator[Hook]:
    here = block(fake, webhook_secret=(SecretStr(SECRET),), allowed_users=("*",))
    settings = make_settings(telegram=here, quota=QuotaSettings(**quota))
    async with open_pipeline(settings) as pipe, open_door(pipe) as door:
        yield Hook(door, fake)


async def next_window(pipe: Pipeline) -> None:
    """As if a minute had passed."""
    for server in pipe.servers.all:
        async for name in server.client.scan_iter("kt:quota:*"):
            await server.client.delete(name)


async def states(pipe: Pipeline) -> list[tuple[str, str | None]]:
    rows = await rows_of(pipe.store, "SELECT state, reason FROM inbox ORDER BY received_at, id")
    return [(row["state"], row["reason"]) for row in rows]


def by(user: int, text: str, chat: int) -> dict[str, Any]:
    update = said(text, chat)
    update["message"]["from"] = {"id": user, "is_bot": False, "first_name": f"U{user}"}
    return update


async def test_over_a_quota_a_chat_is_told_once_its_messages_are_recorded_and_the_next_window_is_open(
    make_settings: MakeSettings, fake: FakeTelegram
) -> None:
    async with telegram(make_settings, fake, user_messages_per_minute=2) as hook:
        pipe = hook.door.pipe
        await hook.bring(*(said(f"{n}") for n in range(5)), by(12, "other", 12))
        assert (await states(pipe)).count(("rejected", "quota")) == 3
        async with working(pipe):
            await fake.until(lambda fake: len(fake.texts(ANN)) == 3 and fake.texts(12) == ["echo: other"])
            await next_window(pipe)
            await hook.bring(said("later"))
            await fake.until(lambda fake: "echo: later" in fake.texts(ANN))
        told = [text for text in fake.texts(ANN) if not text.startswith("echo: ")]
        assert len(told) == 1 and "more than I may take" in told[0]
        assert {"echo: 0", "echo: 1"} < set(fake.texts(ANN))


async def test_a_message_that_comes_again_is_counted_once_and_one_that_was_rejected_stays_so(
    make_settings: MakeSettings, fake: FakeTelegram
) -> None:
    async with telegram(make_settings, fake, chat_messages_per_minute=1) as hook:
        first, second = said("first"), said("second")
        await hook.bring(first, first, first, second)
        await next_window(hook.door.pipe)
        await hook.bring(second)
        assert sorted(await states(hook.door.pipe)) == [("pending", None), ("rejected", "quota")]


async def test_a_chat_and_a_platform_have_quotas_of_their_own(make_settings: MakeSettings, fake: FakeTelegram) -> None:
    async with telegram(make_settings, fake, chat_messages_per_minute=1, platform_messages_per_minute=2) as hook:
        await hook.bring(said("a"), said("b"), by(12, "c", 12), by(13, "d", 13))
        assert [state for state, _ in await states(hook.door.pipe)] == ["pending", "rejected", "pending", "rejected"]


async def test_turns_in_flight_are_limited_until_one_of_them_has_ended(
    make_settings: MakeSettings, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.quotas.GRACE", timedelta(0))
    async with telegram(make_settings, fake, platform_turns_in_flight=2) as hook:
        pipe = hook.door.pipe
        await hook.bring(by(1, "a", 1), by(2, "b", 2), by(1, "behind a", 1), by(3, "too many", 3), by(3, "/status", 3))
        assert sorted(await states(pipe)) == [("pending", None)] * 4 + [("rejected", "quota")]
        await Rig(pipe).run_turns("agent:main:telegram:dm:2")
        await hook.bring(by(3, "now", 3), by(4, "too many again", 4))
        assert sorted(await states(pipe)).count(("rejected", "quota")) == 2
        assert ("answered", None) in await states(pipe)


async def test_the_api_answers_429_with_the_time_to_wait_and_records_nothing(make_settings: MakeSettings) -> None:
    settings = make_settings(
        quota=QuotaSettings(sender_messages_per_minute=1),
        api=ApiSettings(keys=(SecretStr("test-key"), SecretStr("other-key"))),
        webhook=WebhookSettings(secrets=(SecretStr(WEBHOOK_SECRET), SecretStr(OTHER_SECRET))),
    )
    async with open_pipeline(settings) as pipe, open_door(pipe) as door:
        assert (await door.post_api(a_body(id="1", user={"id": "a"}))).status_code == 202
        refused = await door.post_api(a_body(id="2", user={"id": "b"}))
        assert refused.status_code == 429 and 0 < int(refused.headers["retry-after"]) <= 60
        assert (await _post(door, "other-key", "3")).status_code == 202
        assert [(await _webhook(door, id, WEBHOOK_SECRET)).status_code for id in ("4", "5")] == [200, 429]
        assert (await _webhook(door, "5", OTHER_SECRET)).status_code == 200
        assert (await door.stored())["inbox"] == 4


async def _post(door: Door, key: str, id: str) -> httpx.Response:
    return await door.request("POST", "/v1/messages", {"authorization": f"Bearer {key}"}, a_body(id=id))


async def _webhook(door: Door, id: str, secret: str) -> httpx.Response:
    body = a_body(id=id)
    return await door.post(body, signed(body, id, secret=signing.decode_secret(SecretStr(secret))))


async def test_while_redis_is_away_each_process_counts_and_no_message_is_lost(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    server = ValkeyOutage(tmp_path / "valkey")
    quota = QuotaSettings(user_messages_per_minute=2, user_turns_in_flight=1)
    async with open_pipeline(make_settings(redis_url=SecretStr(server.url), quota=quota)) as pipe:
        server.stop()
        async with open_door(pipe) as door:
            answers = [(await door.post_api(a_body(id=f"{n}"))).status_code for n in (1, 1, 2, 3)]
        assert answers == [202, 200, 202, 429]
        assert (await states(pipe)) == [("pending", None)] * 2
    server.start()
    server.stop()


async def test_garbage_under_a_quotas_name_refuses_nobody(make_settings: MakeSettings) -> None:
    settings = make_settings(quota=QuotaSettings(user_messages_per_minute=5))
    async with open_pipeline(settings) as pipe, open_door(pipe) as door:
        assert (await door.post_api(a_body(id="1"))).status_code == 202
        [name] = await names(pipe)
        await pipe.servers.all[0].client.delete(name)
        await pipe.servers.all[0].client.set(name, "garbage")
        assert (await door.post_api(a_body(id="2"))).status_code == 202


async def names(pipe: Pipeline) -> list[str]:
    return [name.decode() async for name in pipe.servers.all[0].client.scan_iter(f"{keys.quota('minute', '')}*")]


async def test_without_a_quota_nothing_is_counted(pipe: Pipeline) -> None:
    async with open_door(pipe) as door:
        assert (await door.post_api(a_body(id="1"))).status_code == 202
    assert await names(pipe) == []


@pytest.mark.parametrize("point", ["quota.before_rejection", "quota.after_rejection"])
async def test_a_rejection_that_is_cut_short_is_repeated_and_told_at_most_once(
    make_settings: MakeSettings, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    reached: list[str] = []

    def raise_once(here: str) -> None:
        reached.append(here)
        if here == point and reached.count(point) == 1:
            raise Injected(point)

    monkeypatch.setattr("producers.settling.reach", raise_once)
    async with telegram(make_settings, fake, user_messages_per_minute=1) as hook:
        await hook.bring(said("taken"))
        update = said("refused")
        assert (await hook.post(update)).status_code == 500
        await hook.bring(update)
        assert sorted(await states(hook.door.pipe)) == [("pending", None), ("rejected", "quota")]
        told = await rows_of(hook.door.pipe.store, "SELECT COUNT(*) AS n FROM outbox")
        assert told[0]["n"] <= 1
