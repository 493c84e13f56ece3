"""Durable steps: what a tool has done is not done again, wherever its worker died."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from keyturn import Call, Done, Entry, Event, Reply, Turn, tool
from shared.clock import now_ms
from shared.lane import Lease
from shared.pipeline import open_pipeline
from shared.reading.trace import find_message, with_steps
from shared.settings import BudgetSettings, CustomCommand, LlmSettings, Settings
from shared.store.usage import Whose, day_of
from tests.flow.test_cli import Cli, cli, environment, lone_cli  # noqa: F401 (fixtures)
from tests.store.books import ask
from tests.support import counted
from tests.support.counted import Killed, World
from tests.support.openai import KEY, MODEL, Asked, Provider, a_call, open_provider
from tests.support.pipe import Rig, control_key, key_of
from tests.support.redis_roles import as_role
from tests.support.working import working
from workers.agents.functions import GeneratorAgent
from workers.agents.isolated import Isolated
from workers.agents.llm import LlmAgent
from workers.side.budget import Budgets
from workers.turn import run, steps
from workers.turn.counting import CRASH_FACTOR
from workers.turn.take import take_turns

SECONDS = 60
TOOLS = ("tests.support.counted",)
# A run of ten steps: three responses and seven calls.
RUN: tuple[tuple[tuple[str, str], ...], ...] = (
    (("look", "menu"), ("order", "tea")),
    (("charge", "tea"), ("look", "bill"), ("charge", "tip")),
    (("order", "cake"), ("charge", "cake")),
)
CALLS = [call for response in RUN for call in response]


@pytest.fixture
def world() -> World:
    return counted.new_world()


def config(provider: Provider, **changes: Any) -> LlmSettings:
    values = {"model": MODEL, "base_url": provider.url, "api_key": SecretStr(KEY), "tools": TOOLS}
    return LlmSettings(**{**values, **changes})


def by_rows(run: tuple[tuple[tuple[str, str], ...], ...] = RUN) -> Callable[[Asked], str | dict[str, Any]]:
    """A model that goes on from what it is shown, as models do. It uses the same call ids in every response."""

    def answer(asked: Asked) -> str | dict[str, Any]:
        made = sum(bool(message.get("tool_calls")) for message in asked.body["messages"])
        if made == len(run):
            return "enjoy"
        calls = [
            a_call(name, orjson.dumps({"what": what}).decode(), f"c{n}") for n, (name, what) in enumerate(run[made])
        ]
        return {"content": None, "tool_calls": calls}

    return answer


async def next_worker(rig: Rig, key: str = key_of()) -> None:
    """The worker is dead, its lease has run out, and another one takes the key."""
    async with asyncio.timeout(SECONDS):
        await rig.turns(await next_lease(rig, key))


async def next_lease(rig: Rig, key: str = key_of()) -> Lease:
    """The same, before it does anything. A last renewal of the dead one may still be on its way."""
    lane, job = rig.pipe.turns, None
    while job is None:
        await rig.expire_lease(lane, key)
        await lane.recover(key)
        job = await rig.pop(lane, key)
    started = await rig.start_job(lane, key, job)
    assert started.lease is not None
    return started.lease


async def killed(rig: Rig, key: str = key_of()) -> None:
    """A worker takes the key and dies."""
    with pytest.raises(Killed):
        await rig.run_turns(key)


def kill_inside(world: World, what: str) -> None:
    def inside(done: str) -> None:
        if done == what:
            world.inside = lambda _: None
            raise Killed

    world.inside = inside


class Places:
    """Every failpoint that steps reach, in order; the worker dies at one of them."""

    def __init__(self, at: int | None = None) -> None:
        self.reached: list[str] = []
        self._at = at

    def reach(self, point: str) -> None:
        self.reached.append(point)
        if len(self.reached) - 1 == self._at:
            raise Killed


async def left_in_sql(rig: Rig) -> int:
    rows = await ask(rig.pipe.store, "SELECT (SELECT COUNT(*) FROM runs) + (SELECT COUNT(*) FROM steps) AS n")
    return int(rows[0]["n"])


async def results(rig: Rig, key: str = key_of()) -> list[str]:
    session, _ = await rig.pipe.store.transcript.load(key, "")
    rows = await ask(
        rig.pipe.store, "SELECT text FROM messages WHERE session_id = :id AND role = 'tool' ORDER BY n", id=session.id
    )
    return [row["text"] for row in rows]


async def test_ag11_a_run_of_ten_steps_is_taken_up_from_every_place_where_its_worker_can_die(
    rig: Rig, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failpoint stands for a prefix of the run: a crash that could have happened."""
    async with open_provider(answer=by_rows()) as provider:
        rig.agent = LlmAgent(config(provider))
        whole = Places()
        monkeypatch.setattr(steps, "reach", whole.reach)
        await rig.accept("tea", chat="whole")
        await rig.run_turns(key_of("whole"))
        assert [what for _, what in CALLS] == [
            what for result in await results(rig, key_of("whole")) for what in [result.split()[1]]
        ]
        assert len(whole.reached) == 2 * (3 + 7 + 5)  # three responses, seven results, five begun: two only read
        for at, point in enumerate(whole.reached):
            world = counted.new_world()
            provider.requests.clear()
            chat, key = f"at{at}", key_of(f"at{at}")
            monkeypatch.setattr(steps, "reach", Places(at).reach)
            await rig.accept("tea", chat=chat)
            await killed(rig, key)
            monkeypatch.setattr(steps, "reach", Places().reach)
            await next_worker(rig, key)
            told = await results(rig, key)
            unknown = [text for text in told if "may have happened" in text]
            assert len(told) == len(CALLS) and (await rig.transcript(key))[-1] == "enjoy", point
            # Nothing that writes acts twice, and what did not act is what the model was told of.
            charged = [what for name, what in CALLS if name == "charge"]
            assert sorted(world.charged) == sorted(set(world.charged)), point
            assert len(unknown) <= 1 and len(world.charged) >= len(charged) - len(unknown), point
            assert bool(unknown) == (_is_inside(whole.reached, at, "charge")), (at, point)
            # A keyed call has one key, however often it acted; nothing that had finished acts again.
            assert len(dict(world.ordered)) == len(set(world.ordered)) == 2, point
            again = len(world.looked) + len(world.ordered) - 4
            assert again == int(point == "step.before_end" and not unknown), (at, point)
            assert len(provider.requests) == 4 + (point == "step.before_response"), point
    assert await left_in_sql(rig) == 0


def _is_inside(reached: list[str], at: int, tool: str) -> bool:
    """Whether the call that had begun and not ended at this place is one of this tool."""
    ended = reached[: at + 1].count("step.after_end")
    if reached[at] not in ("step.after_begin", "step.before_end"):
        return False
    return CALLS[ended][0] == tool


async def test_ag12_a_call_that_writes_and_whose_worker_died_inside_it_is_not_run_again_and_model_and_trace_say_so(
    rig: Rig,
    world: World,
    cli: Cli,  # noqa: F811
) -> None:
    async with open_provider(answer=by_rows(((("charge", "tea"),),))) as provider:
        rig.agent = LlmAgent(config(provider))
        accepted = await rig.accept("tea")
        kill_inside(world, "tea")
        await killed(rig)
        running = await with_steps(rig.pipe, await find_message(rig.pipe, accepted.id))
        assert [(step.name, step.state) for step in running.steps] == [("charge", "begun")]
        await next_worker(rig)
    assert world.charged == ["tea"]
    assert "charge may have happened: it was begun at 20" in provider.requests[-1].last
    traced = await with_steps(rig.pipe, await find_message(rig.pipe, accepted.id))
    assert [(step.name, step.state) for step in traced.steps] == [("charge", "unknown")]
    shown = await cli("messages", "trace", accepted.id)
    assert "charge" in shown.out and "may have happened" in shown.out
    assert await left_in_sql(rig) == 0


async def test_ag12_a_call_that_may_have_happened_is_still_told_when_another_worker_dies_later_in_the_run(
    rig: Rig, world: World
) -> None:
    async with open_provider(answer=by_rows(((("charge", "tea"),), (("charge", "tip"),)))) as provider:
        rig.agent = LlmAgent(config(provider))
        accepted = await rig.accept("tea")
        kill_inside(world, "tea")
        await killed(rig)
        kill_inside(world, "tip")
        with pytest.raises(Killed):
            await next_worker(rig)
        await next_worker(rig)
    assert world.charged == ["tea", "tip"]
    shown = [text for role, text in provider.requests[-1].messages if role == "tool"]
    assert len(shown) == 2 and all("charge may have happened" in text for text in shown)
    assert await results(rig) == shown
    traced = await with_steps(rig.pipe, await find_message(rig.pipe, accepted.id))
    assert [(step.name, step.state) for step in traced.steps] == [("charge", "unknown")] * 2


async def test_ag13_a_keyed_call_whose_worker_died_inside_it_is_made_again_with_the_same_key(
    rig: Rig, world: World
) -> None:
    async with open_provider(answer=by_rows(((("order", "tea"),),))) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("tea")
        kill_inside(world, "tea")
        await killed(rig)
        await next_worker(rig)
    assert len(world.ordered) == 2 and len(set(world.ordered)) == 1
    assert await results(rig) == ["ordered tea"]


async def test_ag14_a_call_that_only_reads_runs_again_and_nobody_is_told(rig: Rig, world: World) -> None:
    async with open_provider(answer=by_rows(((("look", "menu"),),))) as provider:
        rig.agent = LlmAgent(config(provider))
        accepted = await rig.accept("tea")
        kill_inside(world, "menu")
        await killed(rig)
        await next_worker(rig)
    assert world.looked == ["menu", "menu"] and await results(rig) == ["saw menu"]
    traced = await with_steps(rig.pipe, await find_message(rig.pipe, accepted.id))
    assert traced.steps == ()


async def test_ag15_a_worker_that_stood_still_past_its_lease_is_refused_before_its_next_effect(
    rig: Rig, world: World
) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def agent(turn: Turn) -> Any:
        made = [{"id": id, "name": "charge", "arguments": "{}"} for id in ("c1", "c2")]
        if not turn.rows:
            await turn.steps.response(Entry("assistant", "", data={"tool_calls": made}))
        for id in ("c1", "c2"):

            async def do(key: str, id: str = id) -> str:
                world.charged.append(id)
                return id

            await turn.steps.call(Call(id, "charge"), do)
            if id == "c1" and not inside.is_set():
                inside.set()
                await go_on.wait()
        yield Done((Reply("done"),))

    rig.agent = GeneratorAgent(agent)
    await rig.accept("tea")
    stale = asyncio.create_task(rig.turns(await rig.lease()))
    async with asyncio.timeout(SECONDS):
        await inside.wait()
        await next_worker(rig)
        go_on.set()
        await asyncio.wait([stale])
    assert world.charged == ["c1", "c2"]
    assert await rig.transcript() == ["tea", "", "c1", "done"]


async def test_ag16_the_recorded_answer_of_the_model_is_used_again_and_paid_for_once(rig: Rig, world: World) -> None:
    async with open_provider(answer=by_rows(((("look", "menu"), ("charge", "tea")),))) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("tea")
        kill_inside(world, "tea")
        await killed(rig)
        assert len(provider.requests) == 1
        await next_worker(rig)
    assert len(provider.requests) == 2
    [usage] = await ask(rig.pipe.store, "SELECT requests FROM usage")
    assert usage["requests"] == 2


@pytest.mark.parametrize("dies", ["before", "inside"])
async def test_ag17_a_tool_that_was_removed_between_two_attempts_is_an_error_for_the_model(
    rig: Rig, world: World, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    async with open_provider(answer=by_rows(((("charge", "tea"),),))) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("tea")
        if dies == "inside":
            kill_inside(world, "tea")
        else:
            monkeypatch.setattr(steps, "reach", Places(1).reach)  # the response is written down
        await killed(rig)
        monkeypatch.setattr(steps, "reach", Places().reach)
        rig.agent = LlmAgent(config(provider, tools=("tests.support.toolbox",)))
        await next_worker(rig)
    [told] = await results(rig)
    assert told.startswith("charge may have happened" if dies == "inside" else "Not run: there is no tool 'charge'")
    assert (await rig.transcript())[-1] == "enjoy" and len(world.charged) == (dies == "inside")


async def test_a_call_whose_arguments_were_no_object_does_not_run_without_them_after_a_crash(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[float] = []

    @tool
    async def pay(amount: float = 1.0) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    def answer(asked: Asked) -> str | dict[str, Any]:
        if asked.messages[-1][0] == "tool":
            return "enjoy"
        return {"content": None, "tool_calls": [a_call("pay", '{"amount": 100', "c0")]}

    async with open_provider(answer=answer) as provider:
        rig.agent = agent = LlmAgent(config(provider))
        agent.take_tools([pay])
        await rig.accept("tea")
        monkeypatch.setattr(steps, "reach", Places(1).reach)  # the response is written down
        await killed(rig)
        monkeypatch.setattr(steps, "reach", Places().reach)
        await next_worker(rig)
    [told] = await results(rig)
    assert told.startswith("Not run: the arguments are wrong") and paid == []
    [made] = [message["tool_calls"] for message in provider.requests[-1].body["messages"] if message.get("tool_calls")]
    assert made[0]["function"] == {"name": "pay", "arguments": "{}"}


async def test_ag17_of_a_keyed_call_that_had_begun_nobody_says_that_it_was_not_run_because_its_tool_is_gone(
    rig: Rig, world: World
) -> None:
    async with open_provider(answer=by_rows(((("order", "tea"),),))) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("tea")
        kill_inside(world, "tea")
        await killed(rig)
        rig.agent = LlmAgent(config(provider, tools=("tests.support.toolbox",)))
        await next_worker(rig)
    [told] = await results(rig)
    assert told.startswith("order may have happened") and len(world.ordered) == 1


async def test_ag19_a_plain_answer_costs_what_an_echo_costs_and_one_statement_that_its_batch_shares(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    trips: list[str] = []
    database = rig.pipe.store.database
    read, write = database.read, database.write

    async def reading(*given: Any) -> Any:
        statements.extend(step.statement.name for step in given)
        return await read(*given)

    async def writing(*given: Any, **options: Any) -> Any:
        statements.extend(step.statement.name for step in given)
        return await write(*given, **options)

    async def sending(calls: Any) -> Any:
        trips.append("+".join(script.name for script, _, _ in calls))
        return await sent(calls)

    async def asking(answer: Any) -> Any:
        trips.append("asked")
        return await asked(answer)

    async with open_provider() as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("hello")
        await rig.run_turns()
        await rig.accept("hello")
        lease = await rig.lease()
        server = as_role("worker", rig.pipe.servers.all[0])
        sent, asked = server._calls._send, server.asked
        monkeypatch.setattr(database, "read", reading)
        monkeypatch.setattr(database, "write", writing)
        monkeypatch.setattr(server._calls, "_send", sending)
        monkeypatch.setattr(server, "asked", asking)
        await rig.turns(lease)
    # What an echo costs, and one more that is shared with all turns of its batch: what the answer cost.
    commit = ["commit_sessions", "commit_routes", "commit_inbox", "commit_messages", "commit_turns", "commit_outbox"]
    assert statements == ["load", *commit[:-1], "commit_usage", commit[-1], "commit_outcome"]
    assert trips == ["put+acknowledge"]


# -- agents of one's own


async def lone_agent(turn: Turn) -> Any:
    """Calls a tool without a response of a model: a coroutine that is run again from its beginning."""

    async def do(key: str) -> str:
        counted.world.charged.append(key)
        counted.world.inside("tea")
        return "charged"

    first = await turn.steps.call(Call("a", "charge", '{"n": 1}'), do)
    second = await turn.steps.call(Call("b", "charge", '{"n": 2}'), do)
    yield Done((Reply(f"{first.how} {second.how}"),))


async def test_calls_without_a_models_response_are_found_again_by_id_and_arguments(rig: Rig, world: World) -> None:
    rig.agent = GeneratorAgent(lone_agent)
    await rig.accept("tea")
    acted = iter([False, True])

    def second_time(_: str) -> None:
        if next(acted):
            raise Killed

    world.inside = second_time
    await killed(rig)
    await next_worker(rig)
    assert await rig.transcript() == ["tea", "reused unknown"]
    assert len(set(world.charged)) == len(world.charged) == 2


async def test_a_call_that_is_made_twice_in_one_attempt_is_two_calls_with_a_key_each(rig: Rig, world: World) -> None:
    async def twice(turn: Turn) -> Any:
        async def do(key: str) -> str:
            world.charged.append(key)
            return "charged"

        done = [await turn.steps.call(Call("a", "charge", '{"n": 1}'), do) for _ in range(2)]
        yield Done((Reply(" ".join(str(each.how) for each in done)),))

    rig.agent = GeneratorAgent(twice)
    await rig.accept("tea")
    await rig.run_turns()
    assert await rig.transcript() == ["tea", "ran ran"]
    assert len(set(world.charged)) == len(world.charged) == 2


async def test_a_stopped_turn_leaves_no_step_behind(rig: Rig, world: World) -> None:
    async with open_provider(answer=by_rows(((("charge", "tea"), ("charge", "tip")),))) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("tea")
        lease = await rig.lease()
        world.inside = lambda what: lease.drop_until(2**52)
        await rig.turns(lease)
    assert world.charged == ["tea"] and await left_in_sql(rig) == 0


async def test_a_message_that_is_set_aside_leaves_no_step_behind(rig: Rig, world: World) -> None:
    async with open_provider(answer=by_rows(((("charge", "tea"),),))) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("tea")
        kill_inside(world, "tea")
        await killed(rig)
        assert await left_in_sql(rig)
        for _ in range(4 * rig.pipe.settings.max_attempts):
            await rig.expire_lease(rig.pipe.turns, key_of())
            await rig.pipe.turns.recover(key_of())
            lease = await rig.lease()
            await lease.begin(lease.counts.seq)  # and its worker dies
        await next_worker(rig)
    [dead] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert dead["reason"] == "crashed" and await left_in_sql(rig) == 0


# -- what is stopped


def hang(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a tool that looks something up hangs."""
    hangs = asyncio.Event()

    async def look(what: str) -> str:
        hangs.set()
        await asyncio.sleep(3600)
        return what

    monkeypatch.setattr(counted.look, "_function", look)
    return hangs


async def stopped(rig: Rig, hangs: asyncio.Event, *texts: str) -> None:
    """Say these to a worker, and stop the last one while its tool hangs."""
    async with working(rig.pipe, rig.agent), asyncio.timeout(SECONDS):
        for text in texts:
            await rig.accept(text)
        await hangs.wait()
        await rig.accept("/stop")
        while await ask(rig.pipe.store, "SELECT id FROM inbox WHERE state = 'pending'"):
            await asyncio.sleep(0.05)


async def test_a_stopped_custom_command_stays_in_the_conversation_with_what_it_did(
    make_settings: Callable[..., Settings], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, run = hang(monkeypatch), ((("charge", "tea"), ("look", "bill")),)
    settings = make_settings(commands={"buy": CustomCommand(prompt="buy {args}")})
    async with open_provider(answer=by_rows(run)) as provider, open_pipeline(settings) as pipe:
        rig = Rig(pipe, LlmAgent(config(provider)))
        await stopped(rig, hangs, "/buy tea")
        found = await rig.transcript()
    assert world.charged == ["tea"] and found[0] == "buy tea" and "charged tea" in found


async def test_a_stopped_retry_leaves_the_earlier_answer_and_a_note_of_what_it_did(
    make_settings: Callable[..., Settings], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, asked = hang(monkeypatch), list[str]()

    def model(request: Asked) -> str | dict[str, Any]:
        asked.append(request.last)
        if len(asked) == 1:
            return "there is none"
        calls = [a_call("charge", '{"what":"tea"}', "c0"), a_call("look", '{"what":"bill"}', "c1")]
        return {"content": None, "tool_calls": calls}

    async with open_provider(answer=model) as provider, open_pipeline(make_settings(titles=False)) as pipe:
        rig = Rig(pipe, LlmAgent(config(provider)))
        await stopped(rig, hangs, "tea", "/retry")
        found = [text for text in await rig.transcript() if not text.startswith("/")]
    assert world.charged == ["tea"] and found[:3] == ["tea", "there is none", "tea"]
    assert found[3].endswith("had its effect or may have had it: charge.")


async def test_a_message_that_is_stopped_between_two_attempts_leaves_a_note_of_what_the_first_did_and_its_cost_is_counted(
    rig: Rig, world: World
) -> None:
    async with open_provider(answer=by_rows(((("charge", "tea"),),))) as provider:
        rig.agent = LlmAgent(config(provider))
        await rig.accept("tea")
        kill_inside(world, "tea")
        await killed(rig)
        await rig.accept("/stop")
        _, lease = await rig.start(rig.pipe.control, control_key(key_of()))
        assert lease is not None
        await rig.turns(lease)
        await next_worker(rig)
    said, note = (await rig.transcript())[:2]
    assert world.charged == ["tea"] and said == "tea"
    assert note.endswith("had its effect or may have had it: charge.") and await left_in_sql(rig) == 0
    assert (await rig.pipe.store.usage.of_all()).requests == 1


async def test_a_message_that_a_budget_refuses_after_a_crash_leaves_a_note_of_its_effects_and_its_cost_is_counted(
    make_settings: Callable[..., Settings], world: World
) -> None:
    settings = make_settings(budget=BudgetSettings(user_tokens_per_day=1))
    async with open_provider(answer=by_rows(((("charge", "tea"),),))) as provider, open_pipeline(settings) as pipe:
        rig = Rig(pipe, LlmAgent(config(provider)))
        await rig.accept("tea")
        kill_inside(world, "tea")
        await killed(rig)
        usage, elsewhere = pipe.store.usage, Whose("ses_other", "webhook:u=u1", "main")
        await usage.aside({"model": MODEL, "requests": 1, "input": 5, "output": 2}, elsewhere, day_of(now_ms()))
        await take_turns(await next_lease(rig), replace(rig.parts(), budgets=Budgets(pipe)))
        said, note = await rig.transcript()
        assert said == "tea" and note.endswith("had its effect or may have had it: charge.")
        assert (await usage.of_all()).requests == 2 and world.charged == ["tea"] and await left_in_sql(rig) == 0


@pytest.mark.parametrize("stops", ["before its agent", "in its agent"])
async def test_of_a_call_that_had_begun_nobody_says_that_it_was_not_run_because_the_next_attempt_was_stopped(
    rig: Rig, world: World, monkeypatch: pytest.MonkeyPatch, stops: str
) -> None:
    leases: list[Lease] = []

    class Late(LlmAgent):
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            if leases:
                leases[0].drop_until(2**52)
                await asyncio.sleep(SECONDS)
            async for event in super().run(turn):
                yield event

    async with open_provider(answer=by_rows(((("charge", "tea"), ("charge", "tip")),))) as provider:
        rig.agent = Late(config(provider))
        accepted = await rig.accept("tea")
        kill_inside(world, "tea")
        await killed(rig)
        leases.append(await next_lease(rig))
        if stops == "before its agent":
            monkeypatch.setattr(run, "reach", lambda _: leases[0].drop_until(2**52))
        await rig.turns(leases[0])
    begun, planned = await results(rig)
    assert begun.startswith("charge may have happened") and planned.startswith("(Not run") and world.charged == ["tea"]
    traced = await with_steps(rig.pipe, await find_message(rig.pipe, accepted.id))
    assert [(step.name, step.state) for step in traced.steps] == [("charge", "unknown")]
    assert (await rig.pipe.store.usage.of_all()).requests == 1 and await left_in_sql(rig) == 0


# -- dead letters


@pytest.mark.parametrize("dies", [False, True])
async def test_a_dead_letter_leaves_a_note_of_the_effects_that_its_calls_had(
    make_settings: Callable[..., Settings], world: World, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """The next turn reads it, and so does a replay. `dies`: every worker does, instead of a model that answers nothing."""

    def model(asked: Asked) -> str | dict[str, Any]:
        return "hello" if asked.last == "and now?" else {"content": None, "tool_calls": None}

    once = by_rows(((("charge", "tea"),),))
    async with (
        open_provider(answer=lambda asked: once(asked) if asked.last == "tea" else model(asked)) as provider,
        open_pipeline(make_settings(max_attempts=2, backoff_seconds=0.01)) as pipe,
    ):
        rig = Rig(pipe, LlmAgent(config(provider)))
        await rig.accept("tea")
        if dies:
            kill_inside(world, "tea")
            await killed(rig)
            for _ in range(2 * CRASH_FACTOR - 1):
                await rig.expire_lease(pipe.turns, key_of())
                await pipe.turns.recover(key_of())
                lease = await rig.lease()
                await lease.begin(lease.mail[0].seq)
            await next_worker(rig)
        else:
            await rig.run_turns()
            await next_worker(rig)
        [dead] = await pipe.store.dead.all(state="open", limit=10)
        assert dead["reason"] == ("crashed" if dies else "error") and world.charged == ["tea"]
        said, note = await rig.transcript()
        assert said == "tea" and note.endswith("had its effect or may have had it: charge.")
        await rig.accept("and now?")
        await next_worker(rig)
        assert note in [text for _, text in provider.requests[-1].messages]
        assert await left_in_sql(rig) == 0


# -- isolated


@pytest.fixture
def isolated() -> Iterator[Isolated]:
    agent = Isolated("tests.support.agents:charge_twice")
    yield agent
    agent.close()


async def test_an_isolated_turn_has_the_same_steps_as_any_other(
    make_settings: Callable[..., Settings], isolated: Isolated, tmp_path: Path
) -> None:
    path = tmp_path / "effects"
    async with open_pipeline(
        make_settings(max_attempts=50)
    ) as pipe:  # a slow machine may not start the process at once
        rig = Rig(pipe, GeneratorAgent(_dies))
        await rig.accept(str(path))
        await killed(rig)  # so the next attempts run isolated
        parts = replace(rig.parts(), isolated_agent=isolated)
        async with asyncio.timeout(300):
            while not await rig.transcript():
                await rig.expire_lease(rig.pipe.turns, key_of())
                await rig.pipe.turns.recover(key_of())
                await take_turns(await rig.lease(), parts)
        assert (await rig.transcript())[-1] == "reused unknown"
        assert await left_in_sql(rig) == 0
    keys = path.read_text().split()
    assert len(keys) == len(set(keys)) == 2


async def _dies(turn: Turn) -> Any:
    if turn.id:
        raise Killed
    yield Done()
