"""What is asked of a model beside the turns: within budgets, in rounds, and after a failure not at once again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from shared.clock import now_ms
from shared.errors import Outage, RateLimited
from shared.messages import Entry, Session
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import BudgetSettings, MemorySettings, ResetSettings, Settings
from shared.store.change import Change, Commit
from shared.store.usage import Whose
from tests.store.books import ask, proof, write
from tests.support.pipe import Rig, key_of
from tests.support.servers import Databases
from workers.agents.capabilities import Answer
from workers.agents.functions import echo
from workers.side import budget, compression, memory_notes
from workers.side.budget import ALL_SECONDS, Budgets, day_at
from workers.side.compression import CompressionWish, compress, relieve
from workers.upkeep.memory import EndedConversations

ME = "webhook:u=u1"
DAY_MS = 24 * 3_600_000
WINDOW = 2000  # tokens


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


class Model:
    """Answers what it is asked aside, or fails as it is told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[str] = []

    run = staticmethod(echo)

    def context_tokens(self, model: str = "") -> int | None:
        return WINDOW

    async def ask(self, rows: Sequence[Entry], system_prompt: str) -> Answer:
        self.asked.append(rows[-1].text)
        if self.error is not None:
            raise self.error
        return Answer(f"record {len(self.asked)}", "", {})


async def said(pipe: Pipeline, *rows: Entry, change: Change | None = None) -> Session:
    """The session after these rows."""
    for n in range(0, max(len(rows), 1), 50):
        session, _ = await pipe.store.transcript.load(key_of(), "")
        commit = Commit(session, key_of(), proof(), entries=rows[n : n + 50])
        if change is not None:
            commit = Commit(session, key_of(), proof(), entries=rows, change=change)
        await pipe.store.commit(commit)
    session, _ = await pipe.store.transcript.load(key_of(), "")
    return session


def exchanges(count: int, words: int = 0) -> list[Entry]:
    usage = {"usage": {"prompt": WINDOW}}
    return [
        row
        for n in range(count)
        for row in (Entry("user", f"q{n} {'x' * words}"), Entry("assistant", f"a{n}", data=usage))
    ]


# -- summaries


@pytest.mark.parametrize(
    ("streak", "left_ms", "tried"),
    [(0, 0, 5), (1, 0, 15), (2, 0, 60), (3, 0, 60), (9, -1, 60), (1, 1, None)],
)
async def test_each_summary_that_fails_in_a_row_is_followed_by_a_longer_wait(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, streak: int, left_ms: int, tried: int | None
) -> None:
    """`tried`: the minutes until the next try; None: it is not the time yet."""
    now = now_ms()
    monkeypatch.setattr(compression, "now_ms", lambda: now)
    session = await said(pipe, *exchanges(10))
    if streak:
        failed = orjson.dumps({"streak": streak, "until": now + left_ms}).decode()
        session = await said(pipe, change=Change(facts={(session.id, compression.FAILED): failed}))
    relief = await relieve(pipe, key_of(), session, Model(Outage("away")), None, "")
    if tried is None:
        assert relief is None
    else:
        assert relief is not None and relief.note == ""
        [(fact, value)] = relief.change.facts.items()
        assert fact == (session.id, compression.FAILED)
        assert orjson.loads(value or "") == {"streak": streak + 1, "until": now + tried * 60_000}


async def test_a_long_conversation_is_summarised_in_rounds_and_the_rest_the_next_time(pipe: Pipeline) -> None:
    """Each round is shown the record so far. What is said of rows and tokens counts the record as one row."""
    session, model = await said(pipe, *exchanges(12, words=4 * WINDOW)), Model()
    wish = CompressionWish(turns=1, topic="tea")
    first = await compress(pipe, key_of(), session, model, None, wish)
    assert first is not None and first.is_partial and len(model.asked) == compression.ROUNDS == 5
    assert model.asked[0].startswith("The chat since then:\n")
    assert model.asked[1].startswith("The record so far:\nrecord 1\n\nThe chat since then:\n")
    assert all(asked.endswith("\n\nKeep everything about this in detail: tea") for asked in model.asked)
    assert (first.rows, first.change.facts[session.id, "summary"]) == ((24, 15), "record 5")
    session = await said(pipe, change=first.change)
    second = await compress(pipe, key_of(), session, model, None, CompressionWish(turns=1))
    assert second is not None and second.is_partial and model.asked[5].startswith("The record so far:\nrecord 5\n\n")
    assert not model.asked[5].endswith("\n\n")  # no topic, no words about it
    assert second.rows == (15, 5) and first.tokens[0] > first.tokens[1] == second.tokens[0] > second.tokens[1]
    session = await said(pipe, change=second.change)
    third = await compress(pipe, key_of(), session, model, None, CompressionWish(turns=1))
    assert third is not None and not third.is_partial and third.rows == (5, 3)
    assert await compress(pipe, key_of(), await said(pipe, change=third.change), model, None, wish) is None


# -- budgets


async def spend(pipe: Pipeline, owner: str = ME, tokens: int = 100, cost: str = "0.5", days_ago: int = 0) -> None:
    usage = {"model": "m", "requests": 1, "total": tokens, "cost": "estimated", "cost_usd": cost}
    day = day_at(now_ms() - days_ago * DAY_MS, pipe.settings)
    await pipe.store.usage.aside(usage, Whose("ses_1", owner, "main"), day)


@pytest.mark.parametrize(
    ("limits", "owner", "refused"),
    [
        ({"user_tokens_per_day": 100}, ME, "Your budget "),
        ({"user_tokens_per_day": 101}, ME, None),
        ({"user_cost_per_day": 0.5}, ME, "Your budget "),
        ({"user_cost_per_day": 0.51}, ME, None),
        ({"user_tokens_per_day": 1}, None, None),
        ({"user_tokens_per_day": 1}, "webhook:u=u2", None),
        ({"tokens_per_day": 100}, "webhook:u=u2", "The budget of this bot "),
        ({"tokens_per_day": 101}, ME, None),
        ({"cost_per_day": 0.5}, None, "The budget of this bot "),
        ({"cost_per_day": 0.51}, None, None),
        ({"user_tokens_per_day": 101, "cost_per_day": 0.5}, ME, "The budget of this bot "),
        ({}, ME, None),
    ],
)
async def test_a_budget_is_used_up_when_so_much_was_spent_today(
    make_settings: Callable[..., Settings], limits: dict[str, Any], owner: str | None, refused: str | None
) -> None:
    async with open_pipeline(make_settings(budget=BudgetSettings(**limits), timezone="Europe/Berlin")) as pipe:
        await spend(pipe)
        await spend(pipe, tokens=10_000, cost="90", days_ago=2)
        told = await Budgets(pipe).refusal(owner)
    assert (told is None) if refused is None else (told or "").startswith(f"{refused}for today is used up. It works")


async def test_what_all_have_spent_is_asked_again_after_some_seconds_and_on_another_day(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, now = 1000.0, now_ms()
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: clock))
    monkeypatch.setattr(budget, "now_ms", lambda: now)
    async with open_pipeline(make_settings(budget=BudgetSettings(tokens_per_day=100))) as pipe:
        budgets = Budgets(pipe)
        assert await budgets.refusal(ME) is None
        await spend(pipe)
        clock += ALL_SECONDS
        assert await budgets.refusal(ME) is None  # as it was known
        clock += 0.001
        assert await budgets.refusal(ME) is not None
        now += DAY_MS
        assert await budgets.refusal(ME) is None  # at once
        now -= DAY_MS
        assert await budgets.refusal(ME) is not None


async def test_a_refusal_says_when_the_next_day_begins_where_the_deployment_is(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "now_ms", lambda: 1_795_000_000_000)  # 18 November 2026, 11:06 UTC
    settings = make_settings(budget=BudgetSettings(tokens_per_day=0), timezone="Europe/Berlin")
    async with open_pipeline(settings) as pipe:
        told = await Budgets(pipe).refusal(ME)
    assert told == "The budget of this bot for today is used up. It works again from 2026-11-19 00:00 CET on."


# -- memory


@pytest.mark.parametrize(
    ("tries", "error", "minutes"),
    [
        (0, Outage("away"), 1),
        (1, Outage("away"), 2),
        (0, RateLimited(timedelta(minutes=7)), 7),
        (1, RateLimited(timedelta(seconds=1)), 2),
        (0, RateLimited(timedelta(seconds=1)), 1),
    ],
)
async def test_a_look_back_that_failed_is_tried_again_after_a_wait_that_doubles_or_that_its_provider_asks_for(
    make_settings: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    tries: int,
    error: Exception,
    minutes: int,
) -> None:
    idle, memory = ResetSettings(mode="idle", idle_minutes=30), MemorySettings(after_seconds=0)
    async with open_pipeline(make_settings(reset=idle, memory=memory)) as pipe:
        await said(pipe, *exchanges(3))
        await write(pipe.store, "UPDATE sessions SET updated_at = updated_at - :ms", ms=DAY_MS)
        await EndedConversations(pipe).look()
        await write(pipe.store, "UPDATE flushes SET tries = :tries", tries=tries)
        now = now_ms()
        monkeypatch.setattr(memory_notes, "now_ms", lambda: now)
        model = Model(error)
        await Rig(pipe, model).run_turns()  # type: ignore[arg-type]
        [row] = await ask(pipe.store, "SELECT state, tries, due_at FROM flushes")
    assert len(model.asked) == 1
    assert (row["state"], row["tries"], row["due_at"]) == ("due", tries + 1, now + minutes * 60_000)
