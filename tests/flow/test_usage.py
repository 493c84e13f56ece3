"""Accounting: what answers cost is counted with the turn, shown by /usage and `keyturn usage`, and kept within budgets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from shared.agent.events import Delta, Done, Row, Spent
from shared.agent.turn import Result, Turn
from shared.clock import now_ms
from shared.errors import Outage
from shared.messages import Entry, Mail, Reply
from shared.pipeline import open_pipeline
from shared.settings import BudgetSettings, MemorySettings, Settings
from shared.store.change import Commit, Proof
from shared.store.usage import SpentInAll, Whose, day_of
from tests.flow.test_cli import Cli, cli, environment, lone_cli  # noqa: F401 (fixtures)
from tests.flow.test_never_stuck import ended
from tests.store.books import ask
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.working import working
from workers.agents.capabilities import Answer
from workers.agents.functions import GeneratorAgent
from workers.process.parts import open_parts
from workers.side.budget import Budgets
from workers.side.compression import PROMPT
from workers.turn.take import take_turns
from workers.upkeep import memory as upkeep_memory

TODAY = day_of(now_ms())
ME = "webhook:u=u1"
PUT_OFF = "SELECT tries FROM flushes WHERE state = 'due' AND due_at > :later"


class Spender:
    """Answers at a price."""

    def __init__(self, **usage: Any) -> None:
        self.turns = 0
        self.usage = {"model": "m1", "requests": 1, "input": 100, "output": 20, "cache_read": 30, "cache_write": 5}
        self.usage |= {"total": 120, "prompt": 90, "cost": "estimated", "cost_usd": "0.0015"} | usage

    async def run(self, turn: Turn) -> Result:
        self.turns += 1
        usage = {name: value for name, value in self.usage.items() if value is not None}
        return Result((Entry("assistant", "ok", data={"usage": usage}),), (Reply("ok"),))


async def say(rig: Rig, text: str, *, chat: str = "c1", budgets: Budgets | None = None, **source: Any) -> str:
    accepted = await rig.accept(text, chat=chat, **source)
    lease = await rig.lease(accepted.session_key)
    await take_turns(lease, replace(rig.parts(), budgets=budgets))
    return (await rig.pipe.store.outbox.open_parts(f"to:webhook:{chat}", 1000))[-1].text


async def session_id(rig: Rig, chat: str = "c1") -> str:
    row = await rig.pipe.store.sessions.find(key_of(chat))
    assert row is not None
    return str(row["id"])


async def test_a_turn_is_counted_once_per_session_owner_agent_model_and_day(rig: Rig) -> None:
    rig.agent = Spender()
    await say(rig, "one")
    await say(rig, "two")
    rig.agent = Spender(model="m2", input=1, output=1, total=2, prompt=7, cost="unknown", cost_usd=None)
    await say(rig, "three")
    rows = await ask(rig.pipe.store, "SELECT * FROM usage ORDER BY model")
    assert [(row["owner"], row["agent"], row["model"], row["day"]) for row in rows] == [
        (ME, "main", "m1", TODAY),
        (ME, "main", "m2", TODAY),
    ]
    spent, last_prompt = await rig.pipe.store.usage.of_session(await session_id(rig))
    assert (spent.requests, spent.input, spent.output, spent.total) == (3, 201, 41, 242)
    assert (spent.cache_read, spent.cache_write) == (90, 15)
    assert (f"{spent.cost_usd:f}", spent.cost) == ("0.003", "mixed")
    assert last_prompt == 7


async def test_E7_a_session_without_usage_shows_none_and_an_unknown_cost(rig: Rig) -> None:
    await say(rig, "hello")
    assert await rig.pipe.store.usage.of_session(await session_id(rig)) == (SpentInAll(), 0)
    assert await ask(rig.pipe.store, "SELECT * FROM usage") == []  # an agent that spends nothing pays for no accounting
    assert "nothing yet" in await say(rig, "/usage")


async def test_E8_a_turn_without_tokens_keeps_the_last_prompt_and_one_with_zero_sets_it(rig: Rig) -> None:
    async def last_prompt() -> int:
        return (await rig.pipe.store.usage.of_session(await session_id(rig)))[1]

    echo, rig.agent = rig.agent, Spender()
    await say(rig, "one")
    before = await rig.pipe.store.sessions.find(key_of())
    rig.agent = echo
    await say(rig, "two")
    after = await rig.pipe.store.sessions.find(key_of())
    assert await last_prompt() == 90
    assert before is not None and after is not None and after["updated_at"] >= before["updated_at"]
    assert after["version"] == before["version"] + 1
    await rig.pipe.store.usage.aside({"model": "m1", "prompt": 5}, Whose(after["id"], ME, "main"), TODAY)
    assert await last_prompt() == 90  # a question aside says nothing of the conversation
    rig.agent = Spender(prompt=0)
    await say(rig, "three")
    assert await last_prompt() == 0


async def test_a_turn_that_does_not_count_costs_nothing(rig: Rig) -> None:
    """A commit that loses the race leaves no usage; the winner's is counted once."""
    rig.agent = Spender()
    await rig.accept("hello")
    lease = await rig.lease()

    class Outrun(Spender):
        async def run(self, turn: Turn) -> Result:
            result = await super().run(turn)
            if self.turns == 1:  # somebody else moves the session on meanwhile
                session, _ = await rig.pipe.store.transcript.load(key_of(), "")
                mail = [Mail(10**15 + 1, an_inbound("else"), journaled=False)]
                await rig.pipe.store.commit(Commit(session, key_of(), Proof("turn_else", "test", 1, 1, 1), mail=mail))
            return result

    rig.agent = outrun = Outrun()
    await take_turns(lease, rig.parts())
    assert outrun.turns == 2
    spent, _ = await rig.pipe.store.usage.of_session(await session_id(rig))
    assert spent.requests == 1


@pytest.mark.parametrize(
    "odd", [{"input": -1, "cost_usd": "lots"}, {"input": "many", "requests": None}, {"total": 2**60}]
)
async def test_odd_usage_never_fails_a_turn(rig: Rig, odd: dict[str, Any]) -> None:
    rig.agent = Spender(**odd)
    assert await say(rig, "hello") == "ok"
    spent, _ = await rig.pipe.store.usage.of_session(await session_id(rig))
    assert spent.requests == 1


@pytest.mark.parametrize("odd", [{"output": "many"}, {"input": None}, {"output": 0.5}])
async def test_odd_usage_of_a_request_that_did_not_end_hides_no_error(rig: Rig, odd: dict[str, Any]) -> None:
    async def agent(turn: Turn) -> Any:
        yield Spent({"model": "m", "partial": True, **odd})
        yield Delta("so far")
        raise Outage("away", provider="p")

    rig.agent = GeneratorAgent(agent)
    accepted = await rig.accept("hello")
    await rig.run_turns()
    found = await rig.pipe.store.journal.find(accepted.id)
    assert found is not None and found["reason"].startswith("provider:")
    assert (await rig.pipe.store.usage.of_all()).requests == 1


async def test_usage_shows_this_conversation_today_and_all_of_mine(rig: Rig) -> None:
    rig.agent = Spender()
    await say(rig, "one")
    await say(rig, "two", chat="c2")
    await rig.pipe.store.usage.aside(Spender().usage, Whose("ses_old", ME, "main"), "2001-01-01")
    await rig.pipe.store.usage.aside(Spender().usage, Whose("ses_x", "webhook:u=other", "main"), TODAY)
    here, prompt, today, mine = (await say(rig, "/usage")).splitlines()
    assert here == "This conversation: 120 tokens (100 in, 30 from cache, 20 out), 1 requests, about $0.0015"
    assert prompt == "Last prompt: 90 tokens"
    assert today.startswith("Today: 240 tokens") and mine.startswith("All of yours: 360 tokens")


async def test_an_operator_sees_usage_by_user_agent_and_day(rig: Rig, cli: Cli) -> None:  # noqa: F811
    rig.agent = Spender()
    await say(rig, "one")
    await rig.pipe.store.usage.aside(Spender().usage, Whose("ses_old", "webhook:u=other", "helper"), "2001-01-01")
    users = (await cli("usage", "--by", "user", "--json")).json
    assert {(row["user"], row["total"], row["cost_usd"], row["cost"]) for row in users} == {
        (ME, 120, "0.0015", "estimated"),
        ("webhook:u=other", 120, "0.0015", "estimated"),
    }
    assert {row["agent"] for row in (await cli("usage", "--by", "agent", "--json")).json} == {"main", "helper"}
    assert [row["day"] for row in (await cli("usage", "--json")).json] == [TODAY, "2001-01-01"]
    assert [row["day"] for row in (await cli("usage", "--days", "1", "--json")).json] == [TODAY]
    assert "0.0015" in (await cli("usage")).out
    assert (await cli("usage", "--by", "moon")).code != 0


LIMITS: dict[str, Any] = {
    "user_tokens_per_day": 100,
    "user_cost_per_day": 0.001,
    "tokens_per_day": 100,
    "cost_per_day": 0.001,
}


@pytest.mark.parametrize("limit", LIMITS)
async def test_beyond_a_budget_a_message_is_refused_with_the_time_and_without_the_agent(
    make_settings: Callable[..., Settings], limit: str
) -> None:
    async with open_pipeline(make_settings(budget=BudgetSettings(**{limit: LIMITS[limit]}))) as pipe:
        rig, budgets = Rig(pipe), Budgets(pipe)
        rig.agent = agent = Spender()
        await pipe.store.usage.aside(agent.usage, Whose("ses_old", ME, "main"), "2001-01-01")  # another day
        assert await say(rig, "one", budgets=budgets) == "ok"
        accepted = await rig.accept("two")
        fresh = Budgets(pipe)  # the sum of everybody's spending is remembered for a while
        await take_turns(await rig.lease(), replace(rig.parts(), budgets=fresh))
        said = (await pipe.store.outbox.open_parts("to:webhook:c1", 10))[-1].text
        assert "budget" in said and "used up" in said and "00:00 UTC" in said
        found = await pipe.store.journal.find(accepted.id)
        assert found is not None and (found["state"], found["reason"]) == ("rejected", "budget")
        assert agent.turns == 1
        assert "Today" in await say(rig, "/usage", budgets=fresh)  # commands go on
        other = await say(rig, "three", chat="c9", user_alt="alt", budgets=fresh)
        assert (other == "ok") is limit.startswith("user_")


async def test_an_attempt_that_fails_is_counted_and_one_that_goes_on_with_its_steps_is_counted_once(rig: Rig) -> None:
    usage = Spender().usage
    made = {"usage": usage, "tool_calls": [{"id": "c", "name": "n", "arguments": "{}"}]}

    async def agent(turn: Turn) -> Any:
        if not turn.rows:
            yield Row(row := Entry("assistant", "", data=made))
            await turn.steps.response(row)
        yield Row(Entry("assistant", f"attempt {turn.attempt}", data={"usage": usage}))
        if turn.attempt == 1 or turn.mail[-1].text == "never":
            raise RuntimeError("no")
        yield Done((Reply("ok"),))

    async with working(rig.pipe, GeneratorAgent(agent)):
        await ended(rig.pipe, [(await rig.accept("at the second")).id])
        assert (await rig.pipe.store.usage.of_all()).requests == 3  # the step, and a row of each attempt
        await ended(rig.pipe, [(await rig.accept("never")).id])
    assert (await rig.pipe.store.usage.of_all()).requests == 3 + 1 + rig.pipe.settings.max_attempts


@pytest.mark.parametrize("limits", [{}, {"user_tokens_per_day": 1}, {"cost_per_day": 1.0}])
async def test_budgets_are_asked_only_where_one_is_set(
    make_settings: Callable[..., Settings], limits: dict[str, Any]
) -> None:
    async with (
        open_pipeline(make_settings(budget=BudgetSettings(**limits))) as pipe,
        open_parts(pipe, Spender(), "test") as parts,
    ):
        assert (parts.runner.budgets is not None) is bool(limits)


class Asked(Spender):
    """Answers at a price, and counts the questions that come beside turns."""

    wants_context = True

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[str] = []

    async def run(self, turn: Turn) -> Result:
        """Enough is said to be looked at for memory."""
        result = await super().run(turn)
        return Result((*result.entries, *(Entry("assistant", f"more {n}") for n in range(4))), result.replies)

    async def ask(self, rows: Sequence[Entry], system_prompt: str) -> Answer:
        self.questions.append(system_prompt)
        return Answer("a title, a summary or a note", "", self.usage)


async def test_beyond_a_budget_no_question_is_asked_for_titles_summaries_or_memory(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer uses the budget up; after it, nothing that somebody does makes a model work."""
    monkeypatch.setattr(upkeep_memory, "BUSY_MS", 100)
    budget, memory = BudgetSettings(user_tokens_per_day=100), MemorySettings(after_seconds=0, look_seconds=0.1)
    async with open_pipeline(make_settings(budget=budget, memory=memory)) as pipe:
        rig, agent = Rig(pipe), Asked()
        async with working(pipe, agent):
            compress = "/compress here 0"
            commands = [compress, "/branch", compress, "/branch", compress, "/new", "/memory"]
            accepted = [(await rig.accept(text)).id for text in ("I like tea", *commands)]
            rows = await ended(pipe, accepted)
            assert {row["state"] for row in rows} == {"answered"}
            deadline = time.monotonic() + 90
            while not (put_off := await ask(pipe.store, PUT_OFF, later=now_ms() + 1_800_000)):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
        assert agent.turns == 1 and agent.questions == []
        assert [row["tries"] for row in put_off] == [0] * len(put_off)
        said = [part["payload"] for row in rows for part in await pipe.store.outbox.of_turn(row["turn_id"])]
        assert sum("budget for today is used up" in text for text in said) == 3
        titles = await ask(pipe.store, "SELECT title FROM sessions WHERE title IS NOT NULL")
        assert titles == [{"title": "I like tea"}]


async def test_within_a_budget_titles_and_summaries_are_asked_for_and_counted(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(budget=BudgetSettings(user_tokens_per_day=100_000))) as pipe:
        rig, agent = Rig(pipe), Asked()
        async with working(pipe, agent):
            await ended(pipe, [(await rig.accept(text)).id for text in ("one", "two", "/compress here 1")])
        assert PROMPT in agent.questions
        spent = await pipe.store.usage.of_owner(ME, TODAY)
        assert spent.requests >= 3
