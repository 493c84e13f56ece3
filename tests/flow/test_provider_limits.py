"""Limits of providers through whole workers: who waits, what it costs a message, and that /stop ends the waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared import keys
from shared.errors import HeldBack, RateLimited
from shared.pipeline import Pipeline, open_pipeline
from shared.redis_servers import Servers
from shared.settings import Settings
from tests.flow.test_control import until
from tests.flow.test_llm import a_turn, config
from tests.flow.test_never_stuck import ended
from tests.support import openai
from tests.support.openai import Provider, Trouble, open_provider
from tests.support.pipe import Rig, key_of
from tests.support.reading import answer_of
from tests.support.working import working
from workers.agents.isolated import Isolated
from workers.agents.llm import LlmAgent
from workers.agents.model.admitted import AdmittedModel
from workers.agents.model.choice import open_model
from workers.agents.model.contract import USED_UP_NOTICE
from workers.limits.admission import RedisAdmission

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing here is about the database
MakeSettings = Callable[..., Settings]
RETRY_AFTER_SECONDS = 3


class Times(list[Any]):
    """A list that knows when each of its things came."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[float] = []

    def append(self, thing: Any) -> None:
        self.at.append(time.monotonic())
        super().append(thing)


@asynccontextmanager
async def at_work(
    make_settings: MakeSettings, provider: Provider, workers: int = 1, **limits: Any
) -> AsyncIterator[Pipeline]:
    """So many workers, each with connections and an agent of its own. All of them listen."""
    async with AsyncExitStack() as stack:
        for _ in range(workers):
            pipe = await stack.enter_async_context(open_pipeline(make_settings(max_attempts=2, titles=False)))
            agent = LlmAgent(config(provider, limits=limits))
            await stack.enter_async_context(working(pipe, agent))
        client: Any = pipe.servers.of_key(keys.COOLDOWNS).client
        while dict(await client.pubsub_numsub(keys.COOLDOWNS))[keys.COOLDOWNS.encode()] < workers:
            await asyncio.sleep(0.01)
        yield pipe


async def test_ag57_after_a_429_of_one_worker_none_of_four_asks_for_the_time_then_they_come_spread_and_no_attempt_is_spent(
    make_settings: MakeSettings,
) -> None:
    trouble = Trouble(429, "rate_limit_exceeded", headers={"retry-after": str(RETRY_AFTER_SECONDS)})
    async with open_provider(trouble) as provider, at_work(make_settings, provider, workers=4) as pipe:
        provider.requests = times = Times()
        rig, client = Rig(pipe), pipe.servers.of_key(keys.COOLDOWNS).client
        accepted = [await rig.accept("first", chat="c0")]
        while not await client.keys("kt:limits:*") and len(times.at) < 2:  # on a slow machine it may be over already
            await asyncio.sleep(0.005)
        accepted += [await rig.accept("hello", chat=f"c{n}") for n in range(1, 13)]
        rows = await ended(pipe, [one.id for one in accepted])
    refused, *others = times.at
    assert len(others) == 13 and min(others) >= refused + RETRY_AFTER_SECONDS
    assert max(others) - min(others) > 0.3
    assert [(row["state"], row["attempts"]) for row in rows] == [("answered", 1)] * 13


async def test_ag58_a_used_up_quota_is_not_tried_again_and_said_once(make_settings: MakeSettings) -> None:
    async with open_provider(*[openai.OUT_OF_QUOTA] * 2) as provider, at_work(make_settings, provider) as pipe:
        with capture_logs() as lines:
            accepted = [await Rig(pipe).accept("hello", chat=chat) for chat in ("c1", "c2")]
            rows = await ended(pipe, [one.id for one in accepted])
    assert [(row["state"], row["reason"], row["attempts"]) for row in rows] == [("dead", "refused", 1)] * 2
    assert len(provider.requests) == 2
    for row in rows:
        [part] = await _parts(make_settings, row)
        assert USED_UP_NOTICE in part
    assert [line["event"] for line in lines].count("the quota at the provider is used up") == 1


async def test_ag24_stop_while_a_limit_holds_a_turn_back_ends_it_and_nothing_is_sent(
    make_settings: MakeSettings,
) -> None:
    async with open_provider() as provider, at_work(make_settings, provider, concurrency=1) as pipe:
        provider.gate = asyncio.Event()
        rig = Rig(pipe)
        first = await rig.accept("first", chat="c1")
        await until(lambda: len(provider.requests) == 1)
        in_a_worker, given_back = await rig.accept("hello", chat="c2"), await rig.accept("hello", chat="c3")
        await _leased(rig, "c2")
        await rig.accept("/stop", chat="c2")
        await ended(pipe, [in_a_worker.id])
        await _delayed(rig, "c3")
        await rig.accept("/stop", chat="c3")
        rows = await ended(pipe, [in_a_worker.id, given_back.id])
        provider.gate.set()
        [answered] = await ended(pipe, [first.id])
        last = await rig.accept("last", chat="c2")
        rows += await ended(pipe, [last.id])
    assert [(row["state"], row["reason"]) for row in rows[:2]] == [("superseded", "stopped")] * 2
    assert (answered["state"], rows[2]["state"]) == ("answered", "answered")
    assert [asked.last for asked in provider.requests] == ["first", "last"]


async def test_requests_of_an_isolated_turn_are_counted_with_all_others(
    redis_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = Trouble(429, "rate_limit_exceeded", headers={"retry-after": "30"})
    servers, isolated = Servers([redis_url], 1), Isolated("llm")
    first, second = (
        RedisAdmission(servers, lease=timedelta(seconds=60), renew_every=timedelta(seconds=20)) for _ in range(2)
    )
    async with open_provider(trouble) as provider:
        about = (
            ("MODEL", openai.MODEL),
            ("BASE_URL", provider.url),
            ("API_KEY", openai.KEY),
            ("LIMITS__CONCURRENCY", "1"),
        )
        for name, value in about:
            monkeypatch.setenv(f"KEYTURN_LLM__{name}", value)
        try:
            isolated.take_admission(first)
            for _ in range(2):
                with pytest.raises(RateLimited) as caught:
                    await answer_of(isolated, a_turn("hello"))
                assert not isinstance(caught.value, HeldBack) and caught.value.retry_after > timedelta(seconds=25)
            assert len(provider.requests) == 1
            await servers.all[0].client.flushall()
            isolated.take_admission(second)
            account = AdmittedModel(open_model(config(provider)), config(provider, limits={"concurrency": 1})).account
            permit = await second.admit(account, 0)
            with pytest.raises(HeldBack):
                await answer_of(isolated, a_turn("hello"))
            second.leave(permit, None)
            assert (await answer_of(isolated, a_turn("hello"))).replies[0].text == "heard: hello"
        finally:
            isolated.close()
            for admission in (first, second):
                await admission.close()
            await servers.close()
    assert len(provider.requests) == 2


async def _state(rig: Rig, chat: str) -> dict[bytes, bytes]:
    client: Any = rig.pipe.servers.of_key(key_of(chat)).client
    found: dict[bytes, bytes] = await client.hgetall(keys.state("turns", key_of(chat)))
    return found


async def _leased(rig: Rig, chat: str) -> None:
    """Wait until a worker holds the key."""
    while b"token" not in await _state(rig, chat):
        await asyncio.sleep(0.005)


async def _delayed(rig: Rig, chat: str) -> None:
    """Wait until the key was given back, to be woken later."""
    while True:
        state = await _state(rig, chat)
        if b"until" in state and b"token" not in state:
            return
        await asyncio.sleep(0.005)


async def _parts(make_settings: MakeSettings, row: dict[str, Any]) -> list[str]:
    async with open_pipeline(make_settings()) as pipe:
        return [part["payload"] for part in await pipe.store.outbox.of_turn(row["turn_id"])]
