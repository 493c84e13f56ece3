"""What an attempt knows when it begins: of the attempts before it, of the wait behind it, and of mail that could not be opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shared import metrics
from shared.lane.lease import FIRST_MAILBOX_SEQ
from shared.mail import TakeNotes, encode_mail
from shared.operating.dead_letters import replay_letter
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.store.books import ask, write
from tests.support.pipe import Rig, key_of
from tests.support.stages import begun, held, hold, opened
from workers.turn import waiting
from workers.turn.attempt import Attempt
from workers.turn.decide import begin
from workers.turn.fail import not_begun
from workers.turn.outcome import AlreadyEnded, Kept, Retry


async def leave_steps(pipe: Pipeline, inbound_id: str) -> None:
    """An attempt at this message has called a tool."""
    columns = "id, session_id, session_key, inbound_id, holder, state, counted, created_at"
    values = ":run, 's', :key, :inbound, 'dead', 'running', 0, 5"
    insert = f"INSERT INTO runs ({columns}) VALUES ({values})"
    await write(pipe.store, insert, run=f"run_{inbound_id}", key=key_of(), inbound=inbound_id)


async def leave_draft(rig: Rig, inbound_id: str) -> None:
    """An attempt at this message has begun to show its answer."""
    await rig.accept("other", chat="other")
    await rig.run_turns(key_of("other"))
    await write(rig.pipe.store, "UPDATE outbox SET turn_id = :draft", draft=f"draft_{inbound_id}")


@pytest.mark.parametrize("durability", ["journal", "redis"])
async def test_an_attempt_knows_what_those_before_it_left_behind(
    make_settings: Callable[..., Settings], durability: str
) -> None:
    """Redis, which also counts them, may have forgotten."""
    async with open_pipeline(make_settings(durability=durability)) as pipe:
        rig, is_journaled = Rig(pipe), durability == "journal"
        key = await hold(rig)
        first = await opened(key)
        assert (first.attempts, first.outage_ms, first.may_have_run, first.may_have_draft) == (0, None, False, False)
        assert (first.mail.journaled, first.mail.seq < FIRST_MAILBOX_SEQ) == (is_journaled, is_journaled)
        assert first.mail.payload == (b"" if is_journaled else key.lease.mail[0].payload)
        id = first.mail.inbound.id
        await pipe.store.journal.count_attempt(id, 2, "error: no")
        await pipe.store.journal.note_outage(id, 4000, "provider: away")
        await leave_steps(pipe, id)
        await leave_draft(rig, id)
        attempt = await begin(key, await opened(key))
        assert isinstance(attempt, Attempt)
        assert (attempt.may_have_run, attempt.may_have_draft, attempt.isolated) == (True, True, False)
        assert attempt.number == (3 if is_journaled else 1)  # with durability = redis, Redis alone counts
        assert ((attempt.outage_ms or 0) >= 4000) is is_journaled
        assert (attempt.claimed_at, attempt.proof().attempts) == (key.claimed_at, attempt.number)


@pytest.mark.parametrize("durability", ["journal", "redis"])
async def test_a_message_that_could_not_be_opened_is_set_aside_with_its_words_and_can_be_replayed(
    make_settings: Callable[..., Settings], durability: str
) -> None:
    async with open_pipeline(make_settings(durability=durability, max_attempts=1)) as pipe:
        rig = Rig(pipe)
        key = await hold(rig, "poison")
        id = (await opened(key)).mail.inbound.id
        await leave_steps(pipe, id)
        kept = await not_begun(key, RuntimeError("a defect"))
        assert isinstance(kept, Kept)
        await key.lease.acknowledge(kept.seqs, limit=1)
        assert await ask(pipe.store, "SELECT id FROM runs") == []  # nothing of it goes on by itself
        [letter] = await pipe.store.dead.all(state="open", limit=10)
        assert (letter["kind"], letter["reason"], letter["attempts"]) == ("inbound", "error", 1)
        await replay_letter(pipe, letter["id"])
        await rig.run_turns()
        assert (await rig.transcript())[-2:] == ["poison", "echo: poison"]


@pytest.mark.parametrize(("payload", "why"), [(b"garbage", True), (encode_mail(TakeNotes("ses_1")), False)])
async def test_mail_of_redis_alone_that_is_no_message_is_set_aside_once_when_opening_it_fails(
    make_settings: Callable[..., Settings], payload: bytes, why: bool
) -> None:
    async with open_pipeline(make_settings(max_attempts=2)) as pipe:
        rig = Rig(pipe)
        await pipe.turns.put(key_of(), 0, payload)
        key = held(rig, await rig.lease())
        assert isinstance(await not_begun(key, RuntimeError("a defect")), Retry)
        await key.lease.release(spent=True)
        key = held(rig, await rig.lease())
        seq = key.lease.mail[0].seq
        for _ in range(2):
            assert await not_begun(key, RuntimeError("a defect")) == AlreadyEnded((seq,))
        [letter] = await pipe.store.dead.all(state="open", limit=10)
        assert (letter["kind"], letter["reason"], bool(letter["detail"])) == ("mail", "malformed", why)


async def test_mail_that_redis_lost_gets_attempts_of_its_own_when_what_is_behind_it_cannot_be_opened(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(max_attempts=1)) as pipe:
        rig = Rig(pipe)
        await rig.accept("lost")
        await pipe.servers.all[0].client.flushall()
        key = await hold(rig, "behind")
        assert isinstance(await not_begun(key, RuntimeError("a defect")), Retry)
        assert [mail.seq for mail in await key.lease.look(10)] == [1, 2]
        assert await pipe.store.dead.all(state="open", limit=10) == []


def waits() -> dict[str, float]:
    return {cause: seconds._sum.get() for cause, seconds in metrics.WAITED.items()}


@pytest.mark.parametrize(
    ("attempt", "turns", "committed_later_ms", "woken_ms", "waited", "told"),
    [
        (1, 0, -1, 2000, {"worker": 0.5}, {"wait_worker_ms": 500}),
        (1, 0, 1, 2000, {"worker": 0.5, "key": 2.0}, {"wait_worker_ms": 500, "wait_key_ms": 2000}),
        (1, 0, 0, 2000, {"worker": 0.5}, {"wait_worker_ms": 500}),
        (2, 0, 1, 2000, {"worker": 0.5, "delay": 2.0}, {"wait_worker_ms": 500}),
        (1, 3, 1, 2000, {"key": 2.5}, {"wait_key_ms": 2500}),
        (1, 0, 1, 9000, {"key": 2.5}, {"wait_worker_ms": 0, "wait_key_ms": 2500}),
        (1, 0, 1, -9000, {"worker": 11.5}, {"wait_worker_ms": 11500, "wait_key_ms": 0}),
        (2, 0, 1, -9000, {"worker": 11.5}, {"wait_worker_ms": 11500}),
    ],
    ids=["worker", "key", "its own commit", "delay", "a later turn", "a clock ahead", "woken before", "delay, before"],
)
async def test_a_wait_is_counted_for_its_worker_its_conversation_or_its_delay(
    rig: Rig,
    monkeypatch: pytest.MonkeyPatch,
    attempt: int,
    turns: int,
    committed_later_ms: int,
    woken_ms: int,
    waited: dict[str, float],
    told: dict[str, int],
) -> None:
    """The message came at 0 ms, its wake was queued at `woken_ms`, and its attempt began at 2500 ms."""
    came, noted = 1_790_000_000_000, dict[str, Any]()
    begins = await begun(await hold(rig))
    inbound = replace(begins.mail.inbound, received_at=came)
    begins = replace(
        begins,
        number=attempt,
        started_at=came + 2500,
        mail=replace(begins.mail, inbound=inbound),
        session=replace(begins.session, updated_at=came + committed_later_ms),
    )
    monkeypatch.setattr(waiting, "annotate", lambda key="", **values: noted.update(values))
    wake = replace(begins.lease.wake, id=f"{came + woken_ms:012x}{0:020x}")
    monkeypatch.setattr(begins.lease, "wake", wake)
    before = waits()
    waiting.observe_wait(begins, turns)
    after = waits()
    assert {cause: round(after[cause] - before[cause], 6) for cause in after if after[cause] != before[cause]} == waited
    assert noted == {"attempt": attempt, **told}
