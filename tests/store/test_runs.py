"""Runs and steps in the database: who may write a step, and what the next attempt finds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from shared.agent.steps import Effect, How, Stepped
from shared.clock import now_ms
from shared.messages import Entry, Mail
from shared.store import Store
from shared.store.change import Change, Commit
from shared.store.runs import BEGUN, CALL, DONE, PLANNED, RESPONSE, Hold, RecordedStep, end_run, run_of
from tests.store.books import ask, commit, crowd, load, mail, proof
from tests.support.pipe import key_of

ROW = Entry("assistant", "", data={"tool_calls": [{"id": "c1", "name": "charge", "arguments": "{}"}]})
PLAN = (RecordedStep(1, RESPONSE, state=DONE, row=ROW), RecordedStep(2, CALL, "c1", "charge", "{}"))
CHARGED = Stepped("charged", ok=True, how=How.RAN)


async def a_hold(store: Store, letter: Mail, holder: str = "lease_a") -> Hold:
    session = await load(store)
    return Hold(run_of(letter.inbound.id), holder, session.id, session.version, key_of(), letter.inbound.id)


async def states(store: Store, hold: Hold) -> list[str]:
    return [step.state for step in await store.runs.steps(hold.run)]


async def test_a_step_is_found_as_it_was_written_at_every_moment(store: Store) -> None:
    hold = await a_hold(store, await mail(store))
    assert await store.runs.holder(hold.run) is None
    assert await store.runs.add(hold, PLAN)
    assert await store.runs.steps(hold.run) == list(PLAN)
    assert await store.runs.begin(hold, 2, Effect.WRITE)
    [_, begun] = await store.runs.steps(hold.run)
    assert (begun.state, begun.effect, begun.outcome) == (BEGUN, Effect.WRITE, None)
    assert begun.begun_at is not None and abs(now_ms() - begun.begun_at) < 600_000
    assert await store.runs.end(hold, 2, Effect.WRITE, CHARGED)
    [_, done] = await store.runs.steps(hold.run)
    assert (done.state, done.outcome) == (DONE, CHARGED)


async def test_a_step_that_is_written_again_is_written_once(store: Store) -> None:
    hold = await a_hold(store, await mail(store))
    for _ in range(2):
        assert await store.runs.add(hold, PLAN)
    for _ in range(2):
        assert await store.runs.begin(hold, 2, Effect.WRITE)
    for _ in range(2):
        assert await store.runs.end(hold, 2, Effect.WRITE, CHARGED)
    assert await states(store, hold) == [DONE, DONE]


async def test_ag15_a_write_of_a_step_that_arrives_late_takes_nothing_back(store: Store) -> None:
    """A connection that is held up delivers a write after its repetition, when the call has begun or ended."""
    hold = await a_hold(store, await mail(store))
    assert await store.runs.add(hold, PLAN)
    assert await store.runs.begin(hold, 2, Effect.WRITE)
    assert await store.runs.add(hold, PLAN)
    assert await states(store, hold) == [DONE, BEGUN]
    assert await store.runs.end(hold, 2, Effect.WRITE, CHARGED)
    assert await store.runs.add(hold, PLAN)
    assert await store.runs.begin(hold, 2, Effect.WRITE)
    assert await states(store, hold) == [DONE, DONE]


async def test_ag15_every_step_of_a_holder_that_lost_the_run_is_refused(store: Store) -> None:
    stale = await a_hold(store, await mail(store))
    assert await store.runs.add(stale, PLAN)
    ours = replace(stale, holder="lease_b")
    assert not await store.runs.begin(ours, 2, Effect.WRITE)  # not before it has taken the run up
    assert await store.runs.take_up(ours, "lease_a")
    assert not await store.runs.begin(stale, 2, Effect.WRITE)
    assert not await store.runs.end(stale, 2, Effect.WRITE, CHARGED)
    assert not await store.runs.add(stale, [RecordedStep(3, CALL, "c2", "charge", "{}")])
    assert not await store.runs.take_up(stale, "lease_a")  # it was seen so before, and is another's by now
    assert await states(store, ours) == [DONE, PLANNED]
    assert await store.runs.begin(ours, 2, Effect.WRITE)


async def test_ag15_a_step_is_refused_where_the_session_has_moved_on(store: Store) -> None:
    letter = await mail(store)
    hold = await a_hold(store, letter)
    await commit(store, await load(store), letter)  # another worker has answered without a tool
    assert not await store.runs.add(hold, PLAN)
    assert await store.runs.holder(hold.run) is None


async def test_the_commit_of_a_turn_forgets_its_run_and_a_commit_that_lost_forgets_nothing(store: Store) -> None:
    letter = await mail(store)
    hold, session = await a_hold(store, letter), await load(store)
    await store.runs.add(hold, PLAN)
    other = replace(session, version=7)
    change = Change(also=end_run(hold.run))
    lost = Commit(other, key_of(), proof(), (letter,), change=change)
    [refused] = await asyncio.gather(store.commit(lost), return_exceptions=True)
    assert isinstance(refused, Exception) and await states(store, hold) == [DONE, PLANNED]
    await store.commit(replace(lost, session=session))
    assert await ask(store, "SELECT * FROM runs") == [] and await ask(store, "SELECT * FROM steps") == []


async def test_whoever_takes_a_run_up_sees_every_step_that_was_begun_before(store: Store) -> None:
    """Begin and take-up at the same moment: either the step is refused, or the successor finds it begun."""
    await crowd(store)
    letter = await mail(store)
    hold = await a_hold(store, letter)
    for n in range(20):
        stale, ours = replace(hold, run=f"run_{n}"), replace(hold, run=f"run_{n}", holder="lease_b")
        assert await store.runs.add(stale, PLAN)

        async def found(ours: Hold = ours) -> list[str]:
            assert await store.runs.take_up(ours, "lease_a")
            return await states(store, ours)

        begun, seen = await asyncio.gather(store.runs.begin(stale, 2, Effect.WRITE), found())
        assert seen == [DONE, BEGUN if begun else PLANNED]


async def test_runs_whose_message_ended_without_them_are_deleted_and_no_others(store: Store) -> None:
    ended, waiting = await mail(store), await mail(store)
    for letter in (ended, waiting):
        await store.runs.add(await a_hold(store, letter), PLAN)
    await commit(store, await load(store), ended)
    assert await store.runs.forget_left_over(now_ms() - 600_000, 10) == 0  # too young
    assert await store.runs.forget_left_over(now_ms() + 600_000, 10) == 1
    assert await ask(store, "SELECT id FROM runs") == [{"id": run_of(waiting.inbound.id)}]
    assert {row["run_id"] for row in await ask(store, "SELECT run_id FROM steps")} == {run_of(waiting.inbound.id)}


async def test_a_deleted_conversation_leaves_no_step(store: Store) -> None:
    first, second = await mail(store), await mail(store)
    await commit(store, await load(store), first)
    session = await load(store)
    await store.runs.add(await a_hold(store, second), PLAN)
    assert await store.delete(session.id, session.version)
    assert await ask(store, "SELECT * FROM runs") == [] and await ask(store, "SELECT * FROM steps") == []


async def test_whatever_a_tool_says_can_be_written_down(store: Store) -> None:
    hold = await a_hold(store, await mail(store))
    row = replace(ROW, text="nul \x00 and a lone \ud800 surrogate")
    assert await store.runs.add(hold, [replace(PLAN[0], row=row), PLAN[1]])
    assert await store.runs.end(hold, 2, Effect.READ, Stepped("\x00\ud800 ok", ok=False, how=How.RAN))
    [first, second] = await store.runs.steps(hold.run)
    assert first.row is not None and "surrogate" in first.row.text
    assert second.outcome is not None and second.outcome.text.endswith(" ok")
