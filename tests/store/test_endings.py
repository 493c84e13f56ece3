"""Sessions of background tasks and schedules end with their work, and only then does retention remove them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from shared.clock import now_ms
from shared.messages import Entry, Inbound, Mail
from shared.schedules.schedule import Overlap
from shared.session_key import SessionKey
from shared.store import Store
from shared.store.change import ANSWERED, Commit
from shared.tasks.task import TaskState
from tests.flow.test_schedules import a_schedule
from tests.store.books import accept, ask, load, proof
from tests.store.test_tasks import a_task

DAY_MS = 24 * 3_600_000
Remove = Callable[[Store], Awaitable[Any]]


async def answered(store: Store, key: SessionKey, inbound: Inbound, seq: int) -> None:
    rows = [Entry("user", inbound.text, inbound.id), Entry("assistant", "done")]
    session, mail = await load(store, str(key)), Mail(seq, inbound)
    await store.commit(Commit(session, str(key), proof(), (mail,), rows, (), ANSWERED))


async def ended(store: Store) -> list[str | None]:
    return [row["end_reason"] for row in await ask(store, "SELECT end_reason FROM sessions WHERE ended_at IS NOT NULL")]


async def test_the_session_of_a_task_ends_when_the_task_is_forgotten(store: Store) -> None:
    task = a_task()
    await store.tasks.add(task, 10)
    accepted = await accept(store, task.inbound(), key=str(task.key))
    await answered(store, task.key, task.inbound(), accepted.seq)
    await store.tasks.forget(now_ms())
    assert await ended(store) == []  # its result is not handed over yet
    await store.tasks.end(task.id, TaskState.DONE, 300)
    await store.tasks.forget(300)
    assert await ended(store) == ["task_ended"] and await store.facts.of("ending") == {}
    while await store.retention.sessions(now_ms() + 1, 10, noted=False):
        pass
    assert await ask(store, "SELECT id FROM sessions") == [] == await ask(store, "SELECT n FROM messages")


async def test_a_session_in_which_a_turn_still_runs_ends_behind_it(store: Store) -> None:
    task = a_task()
    await store.tasks.add(task, 10)
    first = await accept(store, task.inbound(), key=str(task.key))
    await answered(store, task.key, task.inbound(), first.seq)
    await store.tasks.end(task.id, TaskState.STOPPED, 300)
    late = replace(task.inbound(), id="in_late", event_id="late")
    second = await accept(store, late, key=str(task.key))
    await store.tasks.forget(300)
    assert await ended(store) == [] and str(task.key) in await store.facts.of("ending")
    await answered(store, task.key, late, second.seq)
    await store.tasks.forget(300)
    assert await ended(store) == ["task_ended"] and await store.facts.of("ending") == {}


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.ALL])
async def test_the_sessions_of_a_schedule_end_when_it_is_removed(store: Store, overlap: Overlap) -> None:
    now = now_ms()
    for id in ("sch_1", "sch_2"):
        schedule = a_schedule(id, overlap=overlap)
        assert await store.schedules.add(schedule, 10)
        for n in range(2):
            fired = await store.schedules.run_now(schedule, now + n)
            assert fired is not None
            await answered(store, schedule.key(now + n), fired.inbound, fired.seq)
    assert await store.schedules.remove("sch_1")
    assert await ended(store) == ["schedule_removed"] * (2 if overlap is Overlap.ALL else 1)
    rows = await ask(store, "SELECT session_key FROM sessions WHERE ended_at IS NULL")
    assert {SessionKey.parse(row["session_key"]).chat for row in rows} == {"sch_2"}


async def test_the_session_of_a_slot_that_ran_by_itself_ends_when_the_slot_is_forgotten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.store.schedules.KEPT_SLOTS", 1)
    now, schedule = now_ms(), a_schedule("sch_1", overlap=Overlap.ALL)
    assert await store.schedules.add(schedule, 10)
    for n in range(2):
        fired = await store.schedules.run_now(schedule, now + n)
        assert fired is not None
        await answered(store, schedule.key(now + n), fired.inbound, fired.seq)
    await store.schedules.prune(now_ms() + DAY_MS, 10)
    rows = await ask(store, "SELECT session_key FROM sessions WHERE ended_at IS NOT NULL")
    assert [row["session_key"] for row in rows] == [str(schedule.key(now))]
