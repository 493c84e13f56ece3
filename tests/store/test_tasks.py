"""Background tasks in the database: once each, a bounded number, and stopped also when they are only being started."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from shared.messages import Mail, Reply, Source, State
from shared.store import Store
from shared.store.change import ANSWERED, Commit, Ending
from shared.tasks.task import BackgroundTask, TaskKind, TaskState, task_id, task_of
from tests.store.books import accept, proof, write
from tests.support.pipe import key_of

SOURCE = Source("webhook", "c1", user="u1", user_name="Ann")


def a_task(name: str = "one", *, asked_at: int = 100, created_at: int = 200) -> BackgroundTask:
    return BackgroundTask(
        task_id(name),
        TaskKind.AGENT,
        name,
        f"do {name}",
        key_of(),
        key_of(),
        SOURCE,
        SOURCE,
        "o",
        1,
        asked_at,
        created_at,
    )


async def waits_for_a_lock(connection: psycopg.AsyncConnection[Any], call: asyncio.Task[Any]) -> None:
    """Until the call waits for a transaction of this connection, or is over."""
    async with asyncio.timeout(60):
        while not call.done():
            found = await connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted")
            if await found.fetchone() is not None:
                return
            await asyncio.sleep(0.01)


async def test_a_task_is_kept_once_and_no_more_run_than_may(store: Store) -> None:
    task = a_task()
    assert await store.tasks.add(task, 2) and not await store.tasks.add(task, 2)
    assert await store.tasks.find(task.id) == task
    assert await store.tasks.add(a_task("two"), 2) and not await store.tasks.add(a_task("three"), 2)
    assert await store.tasks.end(task.id, TaskState.DONE, 300) and not await store.tasks.end(
        task.id, TaskState.FAILED, 300
    )
    assert await store.tasks.find(task.id) == replace(task, state=TaskState.DONE, text="")
    assert await store.tasks.add(a_task("three"), 2)
    assert {task.name for task in await store.tasks.running(key_of(), 10)} == {"three", "two"}
    assert await store.tasks.running(key_of("c2"), 10) == []


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)  # SQLite has one writer at a time
async def test_of_tasks_that_are_added_at_the_same_moment_no_more_run_than_may(store: Store, database_url: str) -> None:
    await store.tasks.add(a_task(), 1)
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("UPDATE task_stops SET stopped_at = stopped_at")  # somebody is about to add one, too
        await other.execute("UPDATE tasks SET state = 'done'")
        await other.execute(
            "INSERT INTO tasks SELECT 'task_2', kind, name, text, root_key, parent_key, parent, asked_by, owner, "
            "depth, inbound_id, 'running', asked_at, created_at FROM tasks"
        )
        adding = asyncio.create_task(store.tasks.add(a_task("three"), 2))
        await waits_for_a_lock(other, adding)
        await other.execute("UPDATE tasks SET state = 'running'")
        await other.commit()
    assert not await adding


async def test_a_stop_ends_what_was_asked_for_before_it_also_what_is_only_being_started(store: Store) -> None:
    before, after, late = a_task("before"), a_task("after", asked_at=600), a_task("late", asked_at=500)
    for task in (before, after):
        await store.tasks.add(task, 10)
    assert [task.id for task in await store.tasks.mark_stop(key_of(), 500)] == [before.id]
    await store.tasks.stop(key_of(), 500, 550)
    assert await store.tasks.mark_stop(key_of(), 400) == []  # one that was said earlier takes nothing back
    await store.tasks.add(late, 10)
    states = [found.state for task in (before, after, late) if (found := await store.tasks.find(task.id))]
    assert states == [TaskState.STOPPED, TaskState.RUNNING, TaskState.STOPPED]
    await store.tasks.forget(550)
    assert await store.tasks.find(before.id) is None and await store.tasks.find(after.id) is not None


@pytest.mark.parametrize("waits", ["a part", "a part's letter", "its message's letter"])
async def test_a_task_is_not_forgotten_while_an_answer_of_it_may_still_leave(store: Store, waits: str) -> None:
    task = a_task()
    await store.tasks.add(task, 10)
    await store.tasks.end(task.id, TaskState.UNKNOWN, 300)
    journaled = await accept(store, task.inbound(), key=str(task.key))
    mail = Mail(journaled.seq, task.inbound())
    session, _ = await store.transcript.load(str(task.key), "")
    is_dead = waits == "its message's letter"
    ending = Ending(State.DEAD, "error") if is_dead else ANSWERED
    replies = () if is_dead else (Reply("found it"),)
    await store.commit(Commit(session, str(task.key), proof(), (mail,), [], replies, ending))
    parts = await store.outbox.open_parts(f"to:task:{task.id}", 10)
    if waits == "a part's letter":
        await store.outbox.bury(parts[0], "refused", "no room")
    await store.tasks.forget(300)
    assert await store.tasks.find(task.id) is not None
    if waits == "a part":
        await store.outbox.sending(parts[0], "lease")
        await store.outbox.sent(parts[0], "receipt")
    else:
        [letter] = await store.dead.all(state="open", limit=10)
        await store.dead.close(letter["id"], "dropped")
    await store.tasks.forget(300)
    assert await store.tasks.find(task.id) is None


async def test_tasks_whose_end_nobody_saw_are_found_with_what_is_known(store: Store) -> None:
    tasks = [a_task(name) for name in ("missing", "waiting", "stopped", "leaving", "lost", "silent")]
    for task in tasks:
        await store.tasks.add(task, 10)
    for name, state, part in (
        ("waiting", "pending", None),
        ("stopped", "superseded", None),
        ("leaving", "answered", "pending"),
        ("lost", "answered", "buried"),
        ("silent", "answered", None),
    ):
        task = a_task(name)
        await write(
            store,
            "INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, received_at, turn_id) "
            "VALUES (:id, :id, 'task', :key, 1, '', :state, 1, :turn)",
            id=task.inbound_id,
            key=str(task.key),
            state=state,
            turn=name,
        )
        if part is not None:
            await write(
                store,
                "INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, "
                "created_at) VALUES (:id, :turn, 1, '', '', 'task', '', :state, 1)",
                id=f"out_{name}",
                turn=name,
                state=part,
            )
    found = {one.task.name: (one.turn, one.is_leaving, one.is_lost) for one in await store.tasks.unseen(200, 10)}
    assert found == {
        "missing": (None, False, False),
        "stopped": ("superseded", False, False),
        "leaving": ("answered", True, False),
        "lost": ("answered", False, True),
        "silent": ("answered", False, False),
    }
    assert await store.tasks.unseen(199, 10) == []


def test_the_conversation_of_a_task_is_known_by_its_key() -> None:
    task = a_task()
    assert task_of(str(task.key)) == task.id and task_of(key_of()) is None
