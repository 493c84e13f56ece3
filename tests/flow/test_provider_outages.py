"""A provider that is away: messages wait for it and lose nothing, until it takes too long. No worker waits with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared import keys
from shared.clock import now_ms
from shared.operating.messages import drop_message
from shared.pipeline import open_pipeline
from shared.reading.trace import reason_word
from shared.settings import Settings
from tests.flow.test_llm import config
from tests.flow.test_never_stuck import ended
from tests.store.books import write
from tests.support import openai
from tests.support.openai import Trouble, open_provider
from tests.support.pipe import Rig, key_of
from tests.support.working import working
from workers.agents.llm import LlmAgent
from workers.turn.fail import AWAY

SOON = Trouble(429, "rate_limit_exceeded", headers={"retry-after-ms": "20"})
BUSY_SOON = Trouble(503, "service_unavailable", headers={"retry-after-ms": "20"})
HOUR_MS = 3_600_000


async def state_of(rig: Rig) -> dict[str, int]:
    """The key's counts as Redis has them."""
    found: Any = await rig.pipe.servers.of_key(key_of()).client.hgetall(keys.state("turns", key_of()))
    return {
        name.decode(): int(value)
        for name, value in found.items()
        if name in (b"attempts", b"failed", b"until", b"outage")
    }


async def again(rig: Rig) -> None:
    """The delay ends, and the key has its next attempt."""
    await rig.expire_lease(rig.pipe.turns, key_of())
    await rig.pipe.turns.recover(key_of())
    await rig.run_turns()


async def test_a_provider_that_refuses_more_often_than_max_attempts_costs_a_message_nothing(
    make_settings: Callable[..., Settings],
) -> None:
    troubles = [openai.BROKEN, SOON, openai.CUT, BUSY_SOON, SOON, openai.BROKEN, openai.CUT, SOON]
    async with open_provider(*troubles) as provider, open_pipeline(make_settings(max_attempts=1)) as pipe:
        rig = Rig(pipe)
        async with working(pipe, LlmAgent(config(provider))):
            rows = await ended(pipe, [(await rig.accept(text)).id for text in ("one", "two")])
        assert [(row["state"], row["attempts"]) for row in rows] == [("answered", 1)] * 2
        assert await rig.transcript() == ["one", "heard: one", "two", "heard: two"]
        assert await pipe.store.dead.all(state="open", limit=10) == []


async def test_a_provider_that_is_away_for_too_long_makes_a_dead_letter_with_that_reason_and_the_key_goes_on(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_provider() as provider:
        gone = config(provider)
    async with open_pipeline(make_settings(provider_outage_seconds=0.5, max_attempts=100)) as pipe:
        rig = Rig(pipe)
        first, second = await rig.accept("one"), await rig.accept("two")
        async with working(pipe, LlmAgent(gone)):
            rows = await ended(pipe, [first.id, second.id])
        assert [(row["state"], row["reason"]) for row in rows] == [("dead", "provider")] * 2
        letters = await pipe.store.dead.all(state="open", limit=10)
        assert all("away for" in letter["detail"] for letter in letters) and len(letters) == 2
        assert all(letter["detail"].startswith("openai-compatible: model: ") for letter in letters)
        for row in rows:
            [part] = await pipe.store.outbox.of_turn(row["turn_id"])
            assert AWAY in part["payload"]


async def test_the_wait_is_kept_in_redis_as_long_as_the_provider_asked_and_no_worker_waits(rig: Rig) -> None:
    async with open_provider(openai.RATE_LIMITED) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("hello")
        before = now_ms()
        with capture_logs() as lines:
            await rig.run_turns()  # it ends although nothing was answered
        state = await state_of(rig)
        assert state["until"] >= before + openai.RETRY_AFTER_SECONDS * 1000 - 1000
        assert (state["attempts"], state["failed"]) == (0, 0)
        [line] = [line for line in lines if line["event"] == "turn waits for the provider"]
        assert (line["provider"], line["status"]) == ("openai-compatible", 429)
        await again(rig)
    assert await rig.transcript() == ["hello", "heard: hello"]


async def test_a_provider_that_asks_for_more_time_than_a_message_may_wait_is_not_waited_for(rig: Rig) -> None:
    a_day = Trouble(429, "rate_limit_exceeded", headers={"retry-after": "86400"})
    async with open_provider(a_day) as provider:
        rig.agent = LlmAgent(config(provider))
        refused, behind = await rig.accept("one"), await rig.accept("two")
        await rig.run_turns()
    rows = [await rig.pipe.store.journal.find(accepted.id) for accepted in (refused, behind)]
    assert [(row["state"], row["reason"]) for row in rows if row] == [("dead", "provider"), ("answered", None)]
    [told, answered] = await rig.pipe.store.outbox.open_parts("to:webhook:c1", 10)
    assert (told.text, answered.text) == (AWAY, "heard: two")


async def test_waits_grow_with_the_time_that_the_provider_has_been_away(rig: Rig) -> None:
    client = rig.pipe.servers.of_key(key_of()).client
    async with open_provider(*[openai.BROKEN] * 3) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("hello")
        await rig.run_turns()
        for away_ms, at_least_ms in ((20_000, 20_000), (600_000, 60_000)):
            await client.hset(keys.state("turns", key_of()), "outage", str(now_ms() - away_ms))
            before = now_ms()
            await again(rig)
            wait_ms = (await state_of(rig))["until"] - before
            assert at_least_ms - 1000 < wait_ms < at_least_ms + 60_000
        await again(rig)
    assert await rig.transcript() == ["hello", "heard: hello"]


@pytest.mark.parametrize("lost", ["a worker", "redis"])
async def test_how_long_the_provider_has_been_away_survives(rig: Rig, lost: str) -> None:
    """Redis keeps it for the next worker, and the journal for when Redis has lost it."""
    client = rig.pipe.servers.of_key(key_of()).client
    async with open_provider(*[openai.BROKEN] * 2) as provider:
        rig.agent = LlmAgent(config(provider))
        accepted = await rig.accept("hello")
        await rig.run_turns()
        row = await rig.pipe.store.journal.find(accepted.id)
        assert row is not None and (row["state"], reason_word(row["reason"]), row["attempts"]) == (
            "pending",
            "provider",
            0,
        )
        if lost == "redis":
            earlier = "UPDATE inbox SET outage_since = outage_since - :ms WHERE id = :id"
            await write(rig.pipe.store, earlier, ms=HOUR_MS, id=accepted.id)
            await client.flushall()
            await rig.pipe.turns.put(key_of(), 1, row["payload"].encode())  # as the housekeeper does
        else:
            since = (await state_of(rig))["outage"]
            await client.hset(keys.state("turns", key_of()), "outage", str(since - HOUR_MS))
            await rig.expire_lease(rig.pipe.turns, key_of())
            await rig.pipe.turns.recover(key_of())
            await rig.lease()  # this worker dies with the key
            await rig.expire_lease(rig.pipe.turns, key_of())
            await rig.pipe.turns.recover(key_of())
        await rig.run_turns()
    row = await rig.pipe.store.journal.find(accepted.id)
    assert row is not None and (row["state"], row["reason"]) == ("dead", "provider")


async def test_an_outage_of_one_message_is_not_counted_for_the_next(rig: Rig) -> None:
    client = rig.pipe.servers.of_key(key_of()).client
    async with open_provider(openai.BROKEN, None, openai.BROKEN) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("one")
        second = await rig.accept("two")
        await rig.run_turns()
        await client.hset(keys.state("turns", key_of()), "outage", str(now_ms() - HOUR_MS))
        await again(rig)  # the first is answered, the second finds the provider away
        row = await rig.pipe.store.journal.find(second.id)
        assert row is not None and row["state"] == "pending"
        assert (await state_of(rig))["outage"] > now_ms() - HOUR_MS
        await again(rig)
    assert (await rig.transcript())[-1] == "heard: two"


async def test_errors_of_the_message_itself_still_count(rig: Rig) -> None:
    async with open_provider(answer=lambda _: " ") as provider:
        rig.agent = LlmAgent(config(provider))
        accepted = await rig.accept("hello")
        await rig.run_turns()
        for _ in range(rig.pipe.settings.max_attempts - 1):
            await again(rig)
    row = await rig.pipe.store.journal.find(accepted.id)
    assert row is not None and (row["state"], row["attempts"]) == ("dead", 3)


async def test_an_outage_of_a_message_that_was_dropped_is_not_counted_for_the_next(rig: Rig) -> None:
    async with open_provider(*[openai.BROKEN] * 2) as provider:
        rig.agent = LlmAgent(config(provider))
        first, second = await rig.accept("one"), await rig.accept("two")
        await rig.run_turns()
        client = rig.pipe.servers.of_key(key_of()).client
        await client.hset(keys.state("turns", key_of()), "outage", str(now_ms() - HOUR_MS))
        await drop_message(rig.pipe, first.id, tell=False)
        await rig.run_turns()
    row = await rig.pipe.store.journal.find(second.id)
    assert row is not None and (row["state"], reason_word(row["reason"])) == ("pending", "provider")
