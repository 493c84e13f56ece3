"""What a housekeeper forgets after the default times, and what the pipeline still knows then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from shared.clock import now_ms
from shared.door import accept
from shared.messages import State
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.trace import find_message
from shared.settings import RetentionSettings, Settings
from shared.settings.conversations import MemorySettings
from tests.store.books import ask, write
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.working import working
from workers.upkeep import prune
from workers.upkeep.prune import DAY_MS, FEWEST, ExpiredRecords, RetentionKind


async def test_after_30_days_the_plumbing_is_forgotten_and_the_conversation_and_its_duplicates_are_known(
    rig: Rig, pipe: Pipeline
) -> None:
    said, key = an_inbound("hello", platform="local"), key_of(platform="local")
    async with working(pipe):
        await accept(pipe, said)
        while [row["state"] for row in await ask(pipe.store, "SELECT state FROM outbox")] != ["sent"]:
            await asyncio.sleep(0.01)
    young = ExpiredRecords(pipe, clock=lambda: now_ms() + 29 * DAY_MS)
    assert await young.look() == young.every_seconds
    duty = ExpiredRecords(pipe, clock=lambda: now_ms() + 31 * DAY_MS)
    while await duty.look() < duty.every_seconds:
        pass
    left = {table: await ask(pipe.store, f"SELECT * FROM {table}") for table in ("inbox", "outbox", "turns")}
    assert left == {"inbox": [], "outbox": [], "turns": []}
    traced = await find_message(pipe, said.id)
    assert (traced.state, traced.session_key, traced.event_id) == (State.ANSWERED, None, None)
    assert [*traced.timings] == ["received", "committed"] and (traced.platform, traced.attempts) == ("local", 1)
    again = await accept(pipe, said)
    assert not again.fresh and again.state == State.ANSWERED and again.session_key == key
    assert await rig.transcript(key) == ["hello", "echo: hello"]
    async with working(pipe):  # and the conversation goes on
        await rig.accept("more", platform="local")
        while len(await rig.transcript(key)) < 4:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("enabled", [True, False], ids=["with memory", "without"])
async def test_an_ended_conversation_waits_to_be_looked_through_only_where_somebody_looks(
    make_settings: Callable[..., Settings], enabled: bool
) -> None:
    retention, memory = RetentionSettings(session_days=30), MemorySettings(enabled=enabled, after_seconds=0)
    async with open_pipeline(make_settings(retention=retention, memory=memory)) as pipe:
        rig = Rig(pipe)
        for text in ("hello", "/new"):
            await rig.accept(text)
            await rig.run_turns()
        await write(pipe.store, "UPDATE outbox SET state = 'sent'")
        duty = ExpiredRecords(pipe, clock=lambda: now_ms() + 31 * DAY_MS)
        while await duty.look() < duty.every_seconds:
            pass
        ended = await ask(pipe.store, "SELECT id FROM sessions WHERE ended_at IS NOT NULL")
        assert len(ended) == enabled
        assert len(await ask(pipe.store, "SELECT session_id FROM flushes")) == enabled


async def test_a_kind_that_cannot_be_removed_keeps_no_other_kind(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, foreseen: Callable[[str], None]
) -> None:
    foreseen("housekeeper")

    async def fails(*_: int) -> int:
        raise ValueError("a record that nobody foresaw")

    monkeypatch.setattr(pipe.store.retention, "journal", fails)
    await write(
        pipe.store,
        "INSERT INTO audit (at, who, role, action, target, outcome) VALUES (5, 'a', 'r', 'x', 't', 'd')",
    )
    duty = ExpiredRecords(pipe)
    assert await duty.look() < duty.every_seconds
    assert await ask(pipe.store, "SELECT id FROM audit") == []


async def test_a_step_takes_more_after_quick_ones_and_less_after_slow_ones_and_rests_four_times_as_long(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, times, limits = 1000.0, iter([0.0, 0.0, 5.0, 60.0, 2.0]), list[int]()

    async def remove(before: int, limit: int) -> int:
        nonlocal now
        limits.append(limit)
        now += next(times)
        return 1 if len(limits) < 5 else 0

    monkeypatch.setattr(prune, "kinds", lambda _: [RetentionKind("letters", 1, remove)])
    monkeypatch.setattr(prune, "time", SimpleNamespace(monotonic=lambda: now))
    expired = ExpiredRecords(rig.pipe)
    looks = [await expired.look() for _ in range(5)]
    first = FEWEST * 10
    assert (FEWEST, limits) == (10, [first, 2 * first, 4 * first, 2 * first, first])
    assert looks == [0.0, 0.0, 20.0, expired.every_seconds, expired.every_seconds]  # nothing is left: no rest
