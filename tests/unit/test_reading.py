"""The reader of an agent's events: what it refuses, what it keeps, and what no agent can do to the turn around it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from keyturn import Ask, Began, Call, Delta, Done, Ended, Entry, Event, Notice, Reply, Row, Spent, Took, Turn
from shared.agent.turn import Result
from shared.context.legal import paired
from shared.errors import AgentFault, Stopped
from tests.support.reading import answer_of
from workers.agents import heard
from workers.agents.contract import Agent, NeedsNoTask, StartsFirst
from workers.agents.functions import GeneratorAgent
from workers.agents.reading import Reading, left_behind
from workers.agents.results import ResultAgent

CALL, OTHER, THIRD = Call("c1", "look"), Call("c2", "send"), Call("c3", "tell")
CALLS = Entry("assistant", "", data={"tool_calls": [{"id": c.id, "name": c.name} for c in (CALL, OTHER, THIRD)]})
TURN = Turn("turn_1", "agent:main:webhook:dm:c1", "ses_1", (), ())
DONE = Done((Reply("hi"),))
SECONDS = 60


def yielding(*events: Any) -> Agent:
    async def run(turn: Turn) -> AsyncIterator[Event]:
        for event in events:
            yield event

    return GeneratorAgent(run)


class Hanging:
    """Yields these events, and then nothing more. It notes when it has ended."""

    def __init__(self, *events: Event) -> None:
        self._events = events
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        try:
            for event in self._events:
                yield event
            self.begun.set()
            await asyncio.Event().wait()
        finally:
            self.ended.set()


async def stopped(agent: Hanging) -> Result:
    """What is kept when the user stops it where it hangs."""
    reading = Reading(agent, TURN)
    task = asyncio.create_task(reading.result())
    await asyncio.wait_for(agent.begun.wait(), SECONDS)
    reading.stop()
    with pytest.raises(Stopped) as error:
        await asyncio.wait_for(task, SECONDS)
    assert agent.ended.is_set() and error.value.kept is not None
    return error.value.kept


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([], "ended without Done"),
        ([Delta("a"), Row(Entry("assistant", "a"))], "ended without Done"),
        ([DONE, Delta("a")], "yielded Delta after Done"),
        ([DONE, DONE], "yielded Done after Done"),
        ([Ended(CALL, True, "")], r"Ended without Began for the call c1 \(look\)"),
        ([Began(CALL), Began(CALL)], "Began twice for the call c1"),
        ([Began(CALL), DONE], "Done before Ended of the call c1"),
        ([Row("text")], "a Row whose entry is str, not Entry"),  # type: ignore[arg-type]
        ([Row(Entry("robot", "a"))], "a Row with the role 'robot'"),
        ([Row(Entry("assistant", None))], "a Row whose text is NoneType, not str"),  # type: ignore[arg-type]
        ([Delta(b"a")], "a Delta whose text is bytes, not str"),  # type: ignore[arg-type]
        ([Notice(1)], "a Notice whose text is int"),  # type: ignore[arg-type]
        ([Spent("much")], "a Spent whose usage is str"),  # type: ignore[arg-type]
        ([Began("c1")], "a Began whose call is str"),  # type: ignore[arg-type]
        ([Done(("hi",))], "a Done whose reply is str, not Reply"),  # type: ignore[arg-type]
        (["hi"], "yielded str, which is no event"),
        ([None], "yielded NoneType, which is no event"),
        ([Took(("in_1",))], "Took for mail that its inbox did not give"),
    ],
)
async def test_what_breaks_the_contract_is_named_as_the_agents_fault(events: Sequence[Any], fault: str) -> None:
    with pytest.raises(AgentFault, match=f"^the agent .*{fault}"):
        await answer_of(yielding(*events), TURN)


@pytest.mark.parametrize("given", [None, "text", DONE])
async def test_a_run_that_is_no_async_generator_is_the_agents_fault(given: Any) -> None:
    class Wrong:
        def run(self, turn: Turn) -> Any:
            return given

    with pytest.raises(AgentFault, match=f"gave {type(given).__name__}: it must be an async generator"):
        await answer_of(Wrong(), TURN)


async def test_a_turn_may_end_with_questions_instead_of_done() -> None:
    first, second = Ask("q1", "May I?", ("yes",), timedelta(minutes=1)), Ask("q2", "Which?")
    row, notice = Row(Entry("assistant", "hm")), Notice("wait")
    assert await answer_of(yielding(row, notice, first, second), TURN) == Result(
        (Entry("assistant", "hm"),), (Reply("wait"),), asks=(first, second)
    )


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ((Ask("q", "Well?"), DONE), "Done after Ask"),
        ((Ask("q", "Well?"), Ask("q", "Well?")), "Ask twice with the id 'q'"),
        ((Ask("", "Well?"),), "an Ask without id"),
        ((Ask("q", ""),), "an Ask without text"),
        ((Began(CALL), Ask("q", "Well?")), "Ask before Ended of the call c1"),
        ((Ask(5, "Well?"),), "an Ask whose id is int"),  # type: ignore[arg-type]
    ],
)
async def test_what_no_question_may_be_and_what_may_not_follow_one(events: tuple[Any, ...], fault: str) -> None:
    with pytest.raises(AgentFault, match=fault):
        await answer_of(yielding(*events), TURN)


async def test_rows_and_usage_are_kept_in_order_and_notices_are_said_before_the_replies() -> None:
    rows = (Entry("assistant", "a"), Entry("assistant", "b"))
    used = {"input": 1}
    result = await answer_of(yielding(Notice("wait"), *map(Row, rows), Delta("x"), Spent(used), DONE), TURN)
    assert result == Result(rows, (Reply("wait"), Reply("hi")), (used,))


async def test_an_agent_that_yields_no_row_has_its_replies_kept_as_rows() -> None:
    result = await answer_of(yielding(Done((Reply("one"), Reply(""), Reply("two")))), TURN)
    assert result.entries == (Entry("assistant", "one"), Entry("assistant", "two"))


async def test_of_a_stopped_turn_finished_rows_usage_and_partial_text_are_kept() -> None:
    row = Entry("assistant", "first")
    kept = await stopped(Hanging(Delta("fir"), Row(row), Spent({"input": 3}), Delta("sec"), Delta("ond")))
    assert kept == Result((row, Entry("assistant", "second")), (), ({"input": 3},))
    assert await stopped(Hanging()) == Result()


async def test_ag21_of_a_stopped_batch_of_calls_each_has_a_result_that_says_how_far_it_came() -> None:
    events: list[Event] = [Row(CALLS), Began(CALL), Ended(CALL, True, "seen"), Began(OTHER)]
    kept = await stopped(Hanging(*events))
    assert [row.text for row in kept.entries] == ["", "seen", heard.INTERRUPTED, heard.NOT_RUN]
    assert paired(kept.entries) == list(kept.entries)
    seen = Entry("tool", "seen", data={"tool_call_id": "c1", "name": "look"})
    kept = await stopped(Hanging(*events[:3], Row(seen)))
    assert [row.text for row in kept.entries] == ["", "seen", heard.NOT_RUN, heard.NOT_RUN]


async def test_an_agent_that_never_waits_still_ends_at_its_deadline_and_lets_others_run() -> None:
    class Endless:
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            while True:
                yield Delta("")

    with pytest.raises(TimeoutError):
        await answer_of(Endless(), Turn("t", "k", "s", (), (), deadline=time.monotonic() + 0.05))


async def test_an_agent_is_never_ahead_of_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    taken = heard.Heard.take

    def take(self: heard.Heard, event: object) -> None:
        order.append(f"read {type(event).__name__}")
        taken(self, event)

    async def run(turn: Turn) -> AsyncIterator[Event]:
        for event in (Delta("a"), Delta("b"), DONE):
            order.append(f"yield {type(event).__name__}")
            yield event

    monkeypatch.setattr(heard.Heard, "take", take)
    await answer_of(GeneratorAgent(run), TURN)
    names = ["Delta", "Delta", "Done"]
    assert order == [line for name in names for line in (f"yield {name}", f"read {name}")]


async def test_a_timeout_around_a_yield_is_the_agents_fault_and_cancels_nothing_of_ours() -> None:
    cleaned: list[bool] = []

    class Scoped:
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            try:
                async with asyncio.timeout(0):
                    while True:
                        yield Delta("a")
            finally:
                cleaned.append(True)

    with pytest.raises(AgentFault, match="must not yield inside a task group or a timeout"):
        await answer_of(Scoped(), TURN)
    task = asyncio.current_task()
    assert cleaned == [True] and task is not None and not task.cancelling()
    await asyncio.sleep(0)


@pytest.mark.parametrize("base", [object, NeedsNoTask])
async def test_an_answer_that_is_ready_when_the_stop_comes_is_kept(base: type) -> None:
    class Ready(base):  # type: ignore[misc]
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            asyncio.get_running_loop().call_soon(reading.stop)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(SECONDS)
            yield DONE

    reading = Reading(Ready(), TURN)
    assert (await reading.result()).replies == DONE.replies
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()


class GoesOn:
    """Goes on when it is cancelled, until it is let go. Then it says something more."""

    def __init__(self) -> None:
        self.begun, self.let_go, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        yield Row(Entry("assistant", "a"))
        self.begun.set()
        try:
            while not self.let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await self.let_go.wait()
            yield Row(Entry("assistant", "b"))
            yield DONE
        finally:
            self.ended.set()


async def coroutine(agent: GoesOn) -> Result:
    async for _ in agent.run(TURN):
        pass
    return Result()


@pytest.mark.parametrize("form", [lambda agent: agent, lambda agent: ResultAgent(lambda _: coroutine(agent))])
async def test_ag22_a_turn_that_is_stopped_ends_though_its_agent_goes_on_when_it_is_cancelled(
    form: Callable[[GoesOn], Agent],
) -> None:
    agent = GoesOn()
    reading, before = Reading(form(agent), TURN), left_behind()
    task = asyncio.create_task(reading.result())
    await asyncio.wait_for(agent.begun.wait(), SECONDS)
    reading.stop()
    with pytest.raises(Stopped) as error:
        await asyncio.wait_for(task, SECONDS)
    assert error.value.kept is not None and not agent.ended.is_set() and left_behind() == before + 1
    agent.let_go.set()
    await asyncio.wait_for(agent.ended.wait(), SECONDS)
    async with asyncio.timeout(SECONDS):
        while left_behind() > before:
            await asyncio.sleep(0)
    assert "b" not in [row.text for row in reading.so_far().entries]


async def test_a_turn_ends_at_its_deadline_though_its_agent_goes_on_when_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workers.agents.reading.CLOSE_SECONDS", 0.1)
    agent = GoesOn()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answer_of(agent, replace(TURN, deadline=time.monotonic() + 0.1)), SECONDS)
    agent.let_go.set()
    await asyncio.wait_for(agent.ended.wait(), SECONDS)


async def test_a_turn_that_its_worker_gives_up_ends_though_its_agent_goes_on_when_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workers.agents.reading.CLOSE_SECONDS", 0.1)
    agent = GoesOn()
    task = asyncio.create_task(Reading(agent, TURN).result())
    await asyncio.wait_for(agent.begun.wait(), SECONDS)
    task.cancel()
    await asyncio.wait({task}, timeout=SECONDS)
    assert task.cancelled()
    agent.let_go.set()
    await asyncio.wait_for(agent.ended.wait(), SECONDS)


@pytest.mark.parametrize("base", [object, NeedsNoTask])
async def test_an_agent_that_fails_when_it_is_stopped_is_stopped(base: type) -> None:
    class Failing(base):  # type: ignore[misc]
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            yield Row(Entry("assistant", "a"))
            asyncio.get_running_loop().call_soon(reading.stop)
            try:
                await asyncio.sleep(SECONDS)
            except asyncio.CancelledError:
                raise RuntimeError("while it cleaned up") from None

    reading = Reading(Failing(), TURN)
    with pytest.raises(Stopped) as error:
        await reading.result()
    assert error.value.kept is not None and [row.text for row in error.value.kept.entries] == ["a"]
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()


async def test_an_agent_that_refuses_to_be_closed_does_not_hide_its_fault() -> None:
    class Stubborn:
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            try:
                yield None  # type: ignore[misc]
            finally:
                yield DONE

    with pytest.raises(AgentFault, match="NoneType"):
        await answer_of(Stubborn(), TURN)


async def test_the_deadline_begins_when_the_agent_is_ready() -> None:
    given: list[float] = []

    class Slow(StartsFirst, NeedsNoTask):
        @asynccontextmanager
        async def started(self) -> AsyncIterator[Agent]:
            await asyncio.sleep(0.2)
            yield GeneratorAgent(self._run)

        async def _run(self, turn: Turn) -> AsyncIterator[Event]:
            given.append(turn.deadline)
            yield DONE

    deadline = time.monotonic() + 0.1
    assert (await answer_of(Slow(), Turn("t", "k", "s", (), (), deadline=deadline))).replies == DONE.replies
    assert given[0] >= deadline + 0.19
