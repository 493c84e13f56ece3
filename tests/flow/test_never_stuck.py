"""A conversation never sticks: whatever fails at the head of its mailbox counts, and the mail behind it gets its turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shared import keys
from shared.context.runtime import OBJECTIVE_LIMIT
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import ResetSettings, Settings
from shared.store.change import Commit, Committed
from tests.store.books import write
from tests.support.pipe import Rig, key_of
from tests.support.working import working
from workers.commands import ARGUMENTS_LIMIT
from workers.commands.queue import STEER_CHARACTERS

PATIENCE_SECONDS = 90.0
HOSTILE = (
    "/branch --5",
    "/branch -",
    "/branch 99999999999999999999",
    "/branch -99999999999999999999",
    "/branch ٩٩٩٩٩٩٩٩٩٩٩٩٩٩٩٩٩٩٩٩",
    f"/branch {'9' * 5000}",
    f"/resume {'9' * 5000}",
    "/resume 99999999999999999999",
    f"/memory forget {'9' * 5000}",
    "/memory forget 99999999999999999999",
    "/compress here 9999",
    f"/sessions search {'a' * 60_000}",
    f"/sessions search {'%_!' * 80}",
    f"/search {'a' * 120_000}",
    f"/search {'a' * 256}",
    f"/title {'a' * 60_000}",
    f"/goal {'a' * 60_000}",
    f"/model {'a' * 60_000}",
)


async def ended(pipe: Pipeline, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The journal rows of these messages, once none of them waits any more."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        rows = [await pipe.store.journal.find(id) for id in ids]
        found = [row for row in rows if row is not None and row["state"] != "pending"]
        if len(found) == len(ids):
            return found
        assert time.monotonic() < deadline, [(row or {}).get("state") for row in rows]
        await asyncio.sleep(0.02)


async def test_a_command_that_cannot_work_is_answered_at_the_first_try_and_the_key_goes_on(rig: Rig) -> None:
    accepted = [await rig.accept(text) for text in ("hello", *HOSTILE, "next")]
    while any(row["state"] == "pending" for row in [await _row(rig, one.id) for one in accepted]):
        await rig.run_turns()  # the key is handed over after some turns
    rows = [await _row(rig, one.id) for one in accepted]
    assert [(row["state"], row["attempts"]) for row in rows] == [("answered", 1)] * len(accepted)
    assert (await rig.transcript())[-1] == "echo: next"


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("search", ARGUMENTS_LIMIT),
        ("goal", OBJECTIVE_LIMIT),
        ("steer", STEER_CHARACTERS),
        ("answer", 4096),
    ],
)
async def test_what_is_too_long_for_a_command_is_said_with_the_limit(rig: Rig, command: str, limit: int) -> None:
    await rig.accept(f"/{command} {'a' * (limit + 1)}")
    await rig.run_turns()
    assert f"takes at most {limit:,} characters" in (await rig.transcript())[-1]


async def test_a_command_that_raises_is_answered_and_the_key_goes_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(rig.pipe.store.owned, "newest", broken)
    command, after = await rig.accept("/sessions"), await rig.accept("next")
    await rig.run_turns()
    for id in (command.id, after.id):
        row = await _row(rig, id)
        assert (row["state"], row["attempts"]) == ("answered", 1)
    rows = await rig.transcript()
    assert rows[1] == "Sorry, /sessions did not work. Nothing was changed."
    assert rows[2:] == ["next", "echo: next"]


async def test_a_command_whose_change_cannot_be_kept_is_answered_and_the_key_goes_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = rig.pipe.store.commit

    async def refuses(given: Commit) -> Committed:
        if given.change.title is not None:
            raise ValueError("no database keeps this")
        return await commit(given)

    monkeypatch.setattr(rig.pipe.store, "commit", refuses)
    command = await rig.accept("/title Trip")
    await rig.accept("next")
    await rig.run_turns()
    row = await _row(rig, command.id)
    assert (row["state"], row["attempts"]) == ("answered", 1)
    assert "did not work" in (await rig.transcript())[1]
    assert (await rig.transcript())[-1] == "echo: next"


async def test_every_failure_at_the_head_of_a_mailbox_counts_until_the_message_is_set_aside(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot even be loaded fails before an attempt is begun."""
    async with open_pipeline(make_settings(max_attempts=3, lease_seconds=1, heartbeat_seconds=0.3)) as pipe:
        rig = Rig(pipe)
        poisoned, behind = await rig.accept("poison"), await rig.accept("next")
        load = pipe.store.transcript.load

        async def fails(session_key: str, inbound_id: str, *more: Any) -> Any:
            if inbound_id == poisoned.id:
                raise RuntimeError("a defect")
            return await load(session_key, inbound_id, *more)

        monkeypatch.setattr(pipe.store.transcript, "load", fails)
        async with working(pipe):
            dead, answered = await ended(pipe, [poisoned.id, behind.id])
        assert (dead["state"], dead["attempts"], dead["reason"]) == ("dead", 3, "error")
        assert answered["state"] == "answered"
        [letter] = await pipe.store.dead.all(state="open", limit=10)
        assert "a defect" in letter["detail"]
        parts = await pipe.store.outbox.of_turn(dead["turn_id"])
        assert "could not process" in parts[0]["payload"]


async def test_what_fails_between_the_load_and_the_agent_counts_too(make_settings: Callable[..., Settings]) -> None:
    """A fact of the session that cannot be read: whether it is over is asked before any agent is."""
    settings = make_settings(reset=ResetSettings(mode="idle"), lease_seconds=1, heartbeat_seconds=0.3)
    async with open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        async with working(pipe):
            first = await rig.accept("hello")
            await ended(pipe, [first.id])
            session = await pipe.store.sessions.find(key_of())
            assert session is not None
            about = {"scope": session["id"], "name": "resumed_at"}
            await write(pipe.store, "INSERT INTO facts VALUES (:scope, :name, 'no number')", **about)
            second, third = await rig.accept("poison"), await rig.accept("also")
            dead = await ended(pipe, [second.id, third.id])
            await write(pipe.store, "DELETE FROM facts WHERE scope = :scope AND name = :name", **about)
            [answered] = await ended(pipe, [(await rig.accept("next")).id])
        assert [(row["state"], row["attempts"], row["reason"]) for row in dead] == [("dead", 3, "error")] * 2
        assert answered["state"] == "answered"


async def test_an_attempt_that_failed_before_it_began_is_counted_in_redis(rig: Rig) -> None:
    await rig.accept("hello")
    for expected in (1, 2, 3):
        lease = await rig.lease()
        assert lease.attempts_before(lease.counts.seq) == (expected - 1, expected - 1)
        await lease.release(spent=True)
        state: Any = await rig.pipe.servers.of_key(key_of()).client.hmget(
            keys.state("turns", key_of()), "attempts", "failed"
        )
        assert state == [str(expected).encode()] * 2


async def _row(rig: Rig, id: str) -> dict[str, Any]:
    row = await rig.pipe.store.journal.find(id)
    assert row is not None
    return row
