"""The stages from the agent to the mailbox, each by itself: run, conclude, commit, acknowledge, and what errors become."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared import metrics
from shared.agent.events import Delta, Done, Event, Row, Spent
from shared.agent.turn import Result, Turn
from shared.clock import now_ms
from shared.errors import (
    AgentFault,
    AlreadyDone,
    Crashed,
    Outage,
    Permanent,
    RateLimited,
    Stopped,
    Superseded,
    Unavailable,
)
from shared.lane.lease import LeaseState
from shared.messages import Entry, Reply, State
from shared.pipeline import open_pipeline
from shared.settings import Settings
from shared.store.change import Commit, Committed, Ending
from tests.support.pipe import Rig, key_of
from tests.support.stages import begun, decided, ending, held, hold, opened, replies
from workers.agents.functions import FunctionAgent, GeneratorAgent
from workers.commands import CommandAnswer
from workers.turn.acknowledge import acknowledge, give_back
from workers.turn.attempt import Attempt
from workers.turn.conclude import NOTICE, bury, command_done, commit, commit_change, conclude, end_mail
from workers.turn.cut_short import STOPPED
from workers.turn.fail import AWAY, backoff, failed, let_go, not_begun
from workers.turn.lifetime import reset
from workers.turn.outcome import REOPEN, AlreadyEnded, Kept, Retry
from workers.turn.run import Prepared, prepare, run
from workers.turn.take import take_turns

ANSWER = Result((Entry("assistant", "hi"),), (Reply("hi"),))


async def prepared(rig: Rig, text: str = "hello") -> Prepared:
    return await prepare(await decided(await hold(rig, text)))


async def state_of(attempt: Attempt) -> str:
    row = await attempt.parts.pipe.store.journal.find(attempt.mail.inbound.id)
    assert row is not None
    return str(row["state"])


# -- run


async def test_an_attempt_after_an_unseen_end_runs_the_isolated_agent(rig: Rig) -> None:
    ready = await prepared(rig)
    ready.attempt.parts.isolated_agent = FunctionAgent(lambda text: f"isolated: {text}")
    assert (await run(ready)).replies[0].text == "echo: hello"
    isolated = replace(ready, attempt=replace(ready.attempt, isolated=True))
    assert (await run(isolated)).replies[0].text == "isolated: hello"


async def test_each_attempt_after_the_first_is_counted_as_one_that_was_delivered_again(rig: Rig) -> None:
    ready, before = await prepared(rig), metrics.REDELIVERED._value.get()
    for number, counted in ((1, 0), (2, 1), (3, 2)):
        await run(replace(ready, attempt=replace(ready.attempt, number=number)))
        assert metrics.REDELIVERED._value.get() - before == counted


async def test_a_stop_cuts_the_running_agent_short(rig: Rig) -> None:
    running = asyncio.Event()

    async def slow(text: str) -> str:
        running.set()
        await asyncio.sleep(60)
        return text

    rig.agent = FunctionAgent(slow)
    ready = await prepared(rig)
    task = asyncio.create_task(run(ready))
    await running.wait()
    ready.attempt.lease.drop_until(now_ms())
    with pytest.raises(Stopped):
        await task


async def test_what_a_stopped_turn_had_finished_stays_in_the_conversation_and_is_paid(rig: Rig) -> None:
    running = asyncio.Event()
    usage = {"model": "m", "requests": 1, "input": 7, "output": 2}

    class Streaming:
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            yield Row(Entry("assistant", "first", data={"usage": usage}))
            yield Spent(usage)
            yield Delta("sec")
            running.set()
            await asyncio.sleep(60)

    rig.agent = Streaming()
    await rig.accept("hello")
    lease = await rig.lease()
    turns = asyncio.create_task(rig.turns(lease))
    await running.wait()
    lease.drop_until(now_ms())
    await turns
    assert (await rig.transcript())[:3] == ["hello", "first", "sec"]
    assert (await rig.transcript())[3].startswith("(The user stopped")
    session, _ = await rig.pipe.store.transcript.load(key_of(), "")
    spent, _ = await rig.pipe.store.usage.of_session(session.id)
    assert spent.input == 14


async def test_an_agent_has_the_deadline_that_the_settings_give_it(make_settings: Callable[..., Settings]) -> None:
    cleaned: list[bool] = []

    async def hang(turn: Turn) -> AsyncIterator[Event]:
        try:
            await asyncio.sleep(60)
            yield Done()
        finally:
            cleaned.append(True)

    async with open_pipeline(make_settings(turn_timeout_seconds=0.05, max_attempts=1)) as pipe:
        rig = Rig(pipe, GeneratorAgent(hang))
        await rig.accept("hello")
        await rig.run_turns()
        [dead] = await pipe.store.dead.all(state="open", limit=10)
    assert (dead["reason"], cleaned) == ("timeout", [True])


async def test_an_agent_that_breaks_its_contract_is_named_in_the_dead_letter(rig: Rig) -> None:
    async def wrong(turn: Turn) -> AsyncIterator[Event]:
        yield Row(Entry("assistant", "and no end"))

    rig.agent = GeneratorAgent(wrong)
    ready = await prepared(rig)
    with pytest.raises(AgentFault) as fault:
        await run(ready)
    attempt = replace(ready.attempt, number=rig.pipe.settings.max_attempts)
    assert isinstance(await failed(attempt, fault.value), Kept)
    [dead] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert (dead["reason"], dead["detail"]) == ("error", "AgentFault: the agent ended without Done")


async def test_an_agent_that_had_its_answer_ready_when_the_stop_came_keeps_it(rig: Rig) -> None:
    class Ready:
        async def run(self, turn: Turn) -> Result:
            lease.drop_until(now_ms())
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return ANSWER

    rig.agent = Ready()
    ready = await prepared(rig)
    lease = ready.attempt.lease
    assert await asyncio.create_task(run(ready)) == ANSWER


async def test_a_worker_that_ends_cancels_the_agent_and_that_is_no_stop(rig: Rig) -> None:
    running = asyncio.Event()

    async def slow(text: str) -> str:
        running.set()
        await asyncio.sleep(60)
        return text

    rig.agent = FunctionAgent(slow)
    task = asyncio.create_task(run(await prepared(rig)))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- conclude


async def test_an_answer_is_what_was_said_the_agents_rows_and_replies_between_the_notices(rig: Rig) -> None:
    ready = await prepared(rig)
    seeded = replace(ready.attempt, seed=(Entry("user", "seed"),), closing_notices=("after",))
    ready = replace(ready, attempt=seeded, opening_notices=("before",), facts={("ses", "topic"): "cats"})
    conclusion = conclude(ready, ANSWER)
    assert (ending(conclusion), conclusion.counted_as) == (("answered", None, 1), "answered")
    assert [entry.text for entry in conclusion.commit.entries] == ["seed", "hello", "hi"]
    assert replies(conclusion) == ["before", "hi", "after"]
    assert conclusion.commit.change.facts == {("ses", "topic"): "cats"}
    assert conclusion.commit.proof == ready.proof  # the turn that the agent knows is the one that is committed


async def test_a_command_leaves_rows_that_no_agent_is_shown(rig: Rig) -> None:
    conclusion = command_done(await begun(await hold(rig, "/whoami")), CommandAnswer("you are u1"))
    assert [entry.text for entry in conclusion.commit.entries] == ["/whoami", "you are u1"]
    assert all(entry.data.get("command") for entry in conclusion.commit.entries)
    assert replies(conclusion) == ["you are u1"]


async def test_mail_ends_without_an_answer_by_one_function_whatever_the_reason(rig: Rig) -> None:
    attempt = await decided(await hold(rig))
    silent = end_mail(attempt, Ending(State.SUPERSEDED, "stopped"), entries=(Entry("user", "hello"),))
    told = end_mail(attempt, Ending(State.REJECTED, "budget"), (Reply("no money"),))
    dead = bury(attempt, "error", "why")
    assert [ending(each)[:2] for each in (silent, told, dead)] == [
        ("superseded", "stopped"),
        ("rejected", "budget"),
        ("dead", "error"),
    ]
    assert [each.counted_as for each in (silent, told, dead)] == ["stopped", "rejected", "dead"]
    assert [replies(each) for each in (silent, told, dead)] == [[], ["no money"], [NOTICE]]
    turns = {each.commit.proof.turn_id for each in (silent, told, dead)}
    assert len(turns) == 3 and dead.commit.ending.detail == "why"


# -- commit


async def test_a_commit_ends_the_mail_and_then_does_what_is_to_follow(rig: Rig) -> None:
    ready, followed = await prepared(rig), list[str]()
    conclusion = replace(conclude(ready, ANSWER), afterwards=lambda: followed.append("title"))
    done = await commit(conclusion)
    assert (done.seqs, len(done.committed.outbox), followed) == ((1,), 1, ["title"])
    assert await state_of(ready.attempt) == "answered"
    with pytest.raises((Superseded, AlreadyDone)):
        await commit(conclusion)
    assert followed == ["title"] and await rig.transcript() == ["hello", "hi"]


async def test_what_the_database_cannot_keep_is_replaced_by_what_is_to_be_kept_instead(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = await decided(await hold(rig))
    kept, refused = _refusing(rig, monkeypatch, "bad")
    bad, good = (end_mail(attempt, Ending(State.REJECTED, word), (Reply(word),)) for word in ("bad", "good"))
    with pytest.raises(ValueError, match="bad"):
        await commit(bad)
    done = await commit(replace(bad, otherwise=lambda: good))
    assert (refused, kept) == (["bad", "bad"], ["good"])
    assert done.seqs == (1,) and await state_of(attempt) == "rejected"


def _refusing(rig: Rig, monkeypatch: pytest.MonkeyPatch, reason: str) -> tuple[list[str], list[str]]:
    """Let the store refuse commits with this reason. Gives the reasons that were kept and those that were refused."""
    kept, refused, real = list[str](), list[str](), rig.pipe.store.commit

    async def choosy(given: Commit) -> Committed:
        why = given.ending.reason or ""
        (refused if why == reason else kept).append(why)
        if why == reason:
            raise ValueError(why)
        return await real(given)

    monkeypatch.setattr(rig.pipe.store, "commit", choosy)
    return kept, refused


@pytest.mark.parametrize("lost", [False, True])
async def test_a_commit_waits_for_the_database_while_the_key_is_ours(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    conclusion = conclude(await prepared(rig), ANSWER)
    tries, real = list[Commit](), rig.pipe.store.commit

    async def away_at_first(given: Commit) -> Committed:
        tries.append(given)
        if len(tries) == 1:
            raise Unavailable("away")
        return await real(given)

    monkeypatch.setattr(rig.pipe.store, "commit", away_at_first)
    monkeypatch.setattr("workers.turn.conclude.RETRY_SECONDS", 0)
    conclusion.attempt.lease.state = LeaseState.LOST if lost else LeaseState.HELD
    if lost:
        with pytest.raises(Unavailable):
            await commit(conclusion)
    assert lost or (await commit(conclusion)).seqs == (1,)
    assert len(tries) == (1 if lost else 2)


async def test_a_change_between_turns_ends_no_mail_and_is_fenced_like_any_commit(rig: Rig) -> None:
    attempt = await begun(await hold(rig))
    await commit_change(attempt, reset(attempt.session, "idle"), State.EXPIRED)
    assert await state_of(attempt) == "pending"
    with pytest.raises(Superseded):
        await commit_change(attempt, reset(attempt.session, "idle"), State.EXPIRED)


# -- acknowledge and give back


async def test_done_mail_leaves_the_mailbox_and_the_next_turn_knows_the_session(rig: Rig) -> None:
    await rig.accept("one")
    await rig.accept("two")
    key = held(rig, await rig.lease())
    done = await commit(conclude(await prepare(await decided(key)), ANSWER))
    after = await acknowledge(key, done)
    assert ([mail.seq for mail in key.lease.mail], key.lease.ended, after.turns) == ([2], False, 1)
    assert after.session is not None and after.session.version == 1
    assert (await opened(after)).mail.inbound.text == "two"
    assert after.unloaded().session is None


async def test_a_session_that_changed_by_more_than_rows_is_loaded_before_the_next_turn(rig: Rig) -> None:
    for text in ("one", "/new", "two"):
        await rig.accept(text)
    outcome = await take_turns(await rig.lease(), rig.parts())
    assert isinstance(outcome, Kept) and await rig.transcript() == ["two", "echo: two"]


async def test_a_key_is_handed_over_after_so_many_turns(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(turns_per_lease=1)) as pipe:
        rig = Rig(pipe)
        await rig.accept("one")
        await rig.accept("two")
        key = held(rig, await rig.lease())
        await acknowledge(key, await commit(conclude(await prepare(await decided(key)), ANSWER)))
        assert key.lease.ended and (await rig.lease()).mail[0].seq == 2


@pytest.mark.parametrize(("spent", "number"), [(True, 2), (False, 1)])
async def test_a_key_that_is_given_back_comes_again_and_counts_the_attempt_if_it_was_spent(
    rig: Rig, spent: bool, number: int
) -> None:
    attempt = await begun(await hold(rig))
    await give_back(attempt.lease, Retry(timedelta(0), spent))
    assert (await begun(held(rig, await rig.lease()))).number == number
    await give_back(attempt.lease, Retry(timedelta(0), spent))  # a lease that has ended gives nothing back


# -- errors


@pytest.mark.parametrize(
    ("error", "number", "expected"),
    [
        (RuntimeError("no"), 1, Retry(timedelta(seconds=0.05), spent=True)),
        (RuntimeError("no"), 2, Retry(timedelta(seconds=0.1), spent=True)),
        (RuntimeError("no"), 3, ("dead", "error", NOTICE)),
        (TimeoutError(), 3, ("dead", "timeout", NOTICE)),
        (Crashed("killed"), 2, Retry(timedelta(seconds=0.025), spent=True)),
        (Crashed("killed"), 3, ("dead", "crashed", NOTICE)),
        (Permanent("no", "too long"), 1, ("dead", "refused", "too long")),
        (Permanent("no"), 1, ("dead", "refused", NOTICE)),
        (Outage("busy"), 3, Retry(timedelta(seconds=0.05), spent=False, provider_away=True)),
        (RateLimited(timedelta(seconds=7)), 3, Retry(timedelta(seconds=7), spent=False, provider_away=True)),
        (RateLimited(timedelta(days=1)), 1, ("dead", "provider", AWAY)),
    ],
)
async def test_what_an_attempt_raised_decides_between_another_attempt_and_a_dead_letter(
    rig: Rig, error: Exception, number: int, expected: Any
) -> None:
    attempt = replace(await decided(await hold(rig)), number=number)
    outcome = await failed(attempt, error)
    if isinstance(expected, Retry):
        assert outcome == expected
        assert await state_of(attempt) == "pending" and not attempt.lease.ended
        return
    state, reason, notice = expected
    assert isinstance(outcome, Kept) and await state_of(attempt) == state
    [letter] = await rig.pipe.store.dead.all(state="open", limit=10)
    [part] = await rig.pipe.store.outbox.open_parts("to:webhook:c1", 10)
    assert (letter["reason"], letter["attempts"], part.text) == (reason, number, notice)


async def test_a_stopped_attempt_keeps_what_was_said_and_a_stopped_retry_keeps_nothing_new(rig: Rig) -> None:
    attempt = await decided(await hold(rig, "question"))
    assert isinstance(await failed(attempt, Stopped()), Kept)
    assert await rig.transcript() == ["question", STOPPED]
    await rig.expire_lease(rig.pipe.turns, key_of())
    await rig.pipe.turns.recover(key_of())
    await rig.run_turns()  # the mail that has ended leaves the mailbox
    retry = await decided(await hold(rig, "/retry"))
    assert retry.again is not None and isinstance(await failed(retry, Stopped()), Kept)
    assert await rig.transcript() == ["question", STOPPED]


@pytest.mark.parametrize("error", [Superseded("k"), AlreadyDone("k"), Unavailable("away")])
async def test_what_says_nothing_about_the_message_is_raised_on(rig: Rig, error: Exception) -> None:
    attempt = await decided(await hold(rig))
    with pytest.raises(type(error)):
        await failed(attempt, error)


async def test_a_provider_that_stays_away_is_asked_after_waits_that_double(rig: Rig) -> None:
    attempt = replace(await decided(await hold(rig)), outage_ms=4000)
    began = time.time()
    outcome = await failed(attempt, Outage("busy"))
    assert outcome == Retry(timedelta(seconds=4), spent=False, provider_away=True)
    [row] = await rig.pipe.store.journal.pending(key_of(), after=0, limit=1)
    assert row.outage_ms is not None  # so that it is known where Redis forgets
    assert 4000 <= row.outage_ms <= 4000 + (time.time() - began) * 1000 + 1000


@pytest.mark.parametrize("by_operator", [False, True])
async def test_a_cancelled_attempt_counts_only_if_an_operator_asked_for_it(rig: Rig, by_operator: bool) -> None:
    attempt = await begun(await hold(rig))
    attempt.lease.killed_by_operator = by_operator
    await let_go(attempt.lease, attempt.parts.pipe.settings, attempt.number)
    assert attempt.lease.ended
    if by_operator:  # it comes after a delay
        await rig.expire_lease(rig.pipe.turns, key_of())
        await rig.pipe.turns.recover(key_of())
    assert (await begun(held(rig, await rig.lease()))).number == 1 + by_operator


async def test_an_error_before_an_attempt_is_counted_and_sets_the_message_aside_in_the_end(rig: Rig) -> None:
    key = await hold(rig)
    defect = RuntimeError("a defect")
    for number in (1, 2):
        assert await not_begun(key, defect) == Retry(backoff(rig.pipe.settings, number), spent=True)
        await key.lease.release(spent=True)
        key = held(rig, await rig.lease())
    assert isinstance(await not_begun(key, defect), Kept)
    [letter] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert (letter["reason"], letter["attempts"], letter["detail"]) == ("error", 3, "RuntimeError: a defect")


async def test_a_commit_that_lost_the_race_opens_the_mail_again_and_an_outage_of_ours_is_raised_on(rig: Rig) -> None:
    key = await hold(rig)
    assert await not_begun(key, Superseded("k")) is REOPEN
    assert await not_begun(key, AlreadyDone("k")) is REOPEN
    with pytest.raises(Unavailable):
        await not_begun(key, Unavailable("away"))
    await key.lease.release(spent=False)
    with pytest.raises(RuntimeError, match="late"):  # the key was given back: nothing is left to decide
        await not_begun(key, RuntimeError("late"))


# -- the spine


async def test_taking_turns_says_how_the_last_mail_came_out(rig: Rig) -> None:
    await rig.accept("hello")
    assert isinstance(await take_turns(await rig.lease(), rig.parts()), Kept)

    async def fails(text: str) -> str:
        raise RuntimeError("no")

    rig.agent = FunctionAgent(fails)
    await rig.accept("again")
    lease = await rig.lease()
    assert await take_turns(lease, rig.parts()) == Retry(timedelta(seconds=0.05), spent=True)
    assert lease.ended


async def test_taking_turns_twice_for_the_same_mail_commits_once(rig: Rig) -> None:
    first = await rig.accept("hello")
    row = await rig.pipe.store.journal.find(first.id)
    await rig.run_turns()
    assert row is not None
    await rig.pipe.turns.put(key_of(), row["seq"], row["payload"].encode())
    assert await take_turns(await rig.lease(), rig.parts()) == AlreadyEnded((1,))
    assert await rig.transcript() == ["hello", "echo: hello"]
