"""What answers cost is added up column by column, for whomever one asks, from a day on."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from shared.errors import Superseded
from shared.messages import Entry
from shared.store import Store, usage
from shared.store.change import Change, Commit, Committed
from shared.store.usage import SpentInAll, Whose, day_of, turns_usage
from tests.store.books import ask, load, mail, proof
from tests.support.pipe import key_of

NAMES = ("requests", "input", "output", "cache_read", "cache_write", "total")
FIRST = {"model": "m1", "requests": 2, "input": 10, "output": 20, "cache_read": 3, "cache_write": 4, "total": 37}
SECOND = {"model": "m1", "requests": 1, "input": 100, "output": 200, "cache_read": 30, "cache_write": 40, "total": 370}
OTHER = {"model": "m2", "input": 1, "output": 2}
SUMS = (3, 110, 220, 33, 44, 407)


async def spend(store: Store, *usages: dict[str, Any], owner: str = "me", day: str = "2026-11-16") -> str:
    """What a turn with these answers leaves; the id of its session."""
    session = await load(store)
    entries = [Entry("assistant", "a", data={"usage": usage}) for usage in usages]
    change = Change(usage=turns_usage(entries, Whose(session.id, owner, "main"), day))
    await store.commit(Commit(session, key_of(), proof(), entries=entries, change=change))
    return session.id


def counts(spent: SpentInAll) -> tuple[int, ...]:
    return tuple(getattr(spent, name) for name in NAMES)


async def test_turns_that_end_together_are_counted_by_one_statement_and_only_those_that_won(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = {chat: await load(store, key_of(chat)) for chat in "abcd"}
    written: list[list[str]] = []
    write = store.database.write

    async def writing(*steps: Any, **options: Any) -> Any:
        written.append([step.statement.name for step in steps])
        return await write(*steps, **options)

    async def answered(chat: str) -> Commit:
        """An answer to one message, with the session as it was before all of them."""
        session, letter = sessions[chat], await mail(store, chat=chat)
        entries = [Entry("assistant", "a", data={"usage": usage}) for usage in (FIRST, OTHER, SECOND)]
        change = Change(usage=turns_usage(entries, Whose(session.id, f"user {chat}", "main"), "2026-11-16"))
        return Commit(session, key_of(chat), proof(), (letter,), entries, change=change)

    await store.commit(await answered("d"))  # so the next turn of that session loses
    commits = [await answered(chat) for chat in "abcd"]
    monkeypatch.setattr(store.database, "write", writing)
    ended = await asyncio.gather(*map(store.commit, commits), return_exceptions=True)
    assert [type(each) for each in ended] == [Committed] * 3 + [Superseded]
    assert not any(each.changed for each in ended if isinstance(each, Committed))  # the next turn need not load it
    batches = [names for names in written if "commit_usage" in names]
    assert len(batches) < 4 and all(names.count("commit_usage") == 1 for names in batches)
    for chat in "abcd":
        assert counts(await store.usage.of_owner(f"user {chat}")) == (4, 111, 222, 33, 44, 410)


async def test_answers_of_one_turn_are_added_up_by_model(store: Store) -> None:
    id = await spend(
        store, {**FIRST, "cost_usd": "0.5", "prompt": 7}, OTHER, {**SECOND, "cost_usd": "0.25", "prompt": 9}
    )
    rows = await ask(store, "SELECT * FROM usage ORDER BY model")
    assert [row["model"] for row in rows] == ["m1", "m2"]
    assert tuple(rows[0][name] for name in NAMES) == SUMS
    assert (rows[0]["cost_nano"], rows[0]["priced"], rows[0]["last_prompt"]) == (750_000_000, 3, 9)
    assert tuple(rows[1][name] for name in NAMES) == (1, 1, 2, 0, 0, 3)  # one request, and the total of both
    assert (rows[1]["cost_nano"], rows[1]["priced"], rows[1]["last_prompt"]) == (0, 0, 0)
    assert {(row["session_id"], row["owner"], row["agent"], row["day"]) for row in rows} == {
        (id, "me", "main", "2026-11-16")
    }


@pytest.mark.parametrize("aside", [False, True])
async def test_turns_and_questions_aside_are_added_to_what_was_spent_before(store: Store, aside: bool) -> None:
    id = await spend(store, {**FIRST, "cost_usd": "0.5", "prompt": 7})
    if aside:
        await store.usage.aside({**SECOND, "cost_usd": "0.25", "prompt": 9}, Whose(id, "me", "main"), "2026-11-16")
    else:
        await spend(store, {**SECOND, "cost_usd": "0.25", "prompt": 9})
    [row] = await ask(store, "SELECT * FROM usage")
    assert tuple(row[name] for name in NAMES) == SUMS
    assert (row["cost_nano"], row["priced"], row["last_prompt"]) == (750_000_000, 3, 7 if aside else 9)
    spent, last_prompt = await store.usage.of_session(id)
    assert (counts(spent), spent.cost_usd, last_prompt) == (SUMS, Decimal("0.75"), 7 if aside else 9)


async def test_what_was_spent_is_told_for_an_owner_for_all_and_by_group_from_a_day_on(store: Store) -> None:
    id = await spend(store, FIRST, day="2026-11-15")
    await spend(store, SECOND, day="2026-11-16")
    await store.usage.aside(OTHER, Whose(id, "you", "helper"), "2026-11-17")
    spent_by = store.usage
    assert counts(await spent_by.of_owner("me")) == SUMS and counts(await spent_by.of_owner("nobody")) == (0,) * 6
    assert (await spent_by.of_owner("me", "2026-11-16")).total == 370
    assert (await spent_by.of_owner("me", "2026-11-17")).total == 0
    assert [(await spent_by.of_all(day)).total for day in ("2026-11-15", "2026-11-16", "2026-11-17")] == [410, 373, 3]
    assert (await spent_by.of_session(id))[0].total == 410 and (await spent_by.of_session("none")) == (SpentInAll(), 0)
    listed = {group: await spent_by.by(group, "2026-11-15", 10) for group in ("user", "agent", "model", "day")}
    assert {group: [(name, spent.total) for name, spent in rows] for group, rows in listed.items()} == {
        "user": [("me", 407), ("you", 3)],
        "agent": [("main", 407), ("helper", 3)],
        "model": [("m1", 407), ("m2", 3)],
        "day": [("2026-11-17", 3), ("2026-11-16", 370), ("2026-11-15", 37)],
    }
    assert counts(listed["user"][0][1]) == SUMS
    for group in ("user", "agent", "model", "day"):
        assert len(await spent_by.by(group, "2026-11-15", 1)) == 1
        assert sum(spent.total for _, spent in await spent_by.by(group, "2026-11-16", 10)) == 373


async def test_who_looks_again_and_again_adds_up_many_rows_seldom_and_few_each_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "ROWS_PER_SECOND", 1e-6)  # a row is kept for eleven days
    await spend(store, FIRST)
    assert (await store.usage.of_all_lately("2026-11-16")).total == 37
    await spend(store, SECOND)
    assert (await store.usage.of_all_lately("2026-11-16")).total == 37
    assert (await store.usage.of_all("2026-11-16")).total == 407
    monkeypatch.setattr(usage, "ROWS_PER_SECOND", float("inf"))
    assert (await store.usage.of_all_lately("2026-11-15")).total == 407  # another day is another sum
    await spend(store, OTHER)
    assert (await store.usage.of_all_lately("2026-11-15")).total == 410


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"input": 2**50 - 1}, (1, 2**50 - 1, 0, 0, 0, 2**50 - 1)),
        ({"input": 2**50, "output": 1}, (1, 0, 1, 0, 0, 1)),
        ({"input": -1, "output": True, "requests": "many"}, (1, 0, 0, 0, 0, 0)),
        ({"input": 0, "output": 5, "total": 9}, (1, 0, 5, 0, 0, 9)),
    ],
)
async def test_what_is_no_count_is_none(store: Store, said: dict[str, Any], kept: tuple[int, ...]) -> None:
    await spend(store, said)
    assert counts(await store.usage.of_all()) == kept


@pytest.mark.parametrize(
    ("cost", "nano", "priced"),
    [
        ("0", 0, 1),
        ("0.000000001", 1, 1),
        ("999999.5", 999_999_500_000_000, 1),
        (1_000_000, 0, 0),
        (-1, 0, 0),
        ("lots", 0, 0),
        ("nan", 0, 0),
        (None, 0, 0),
    ],
)
async def test_a_cost_that_is_none_is_unknown(store: Store, cost: Any, nano: int, priced: int) -> None:
    await spend(store, {**OTHER, "cost_usd": cost})
    [row] = await ask(store, "SELECT cost_nano, priced FROM usage")
    assert (row["cost_nano"], row["priced"]) == (nano, priced)


@pytest.mark.parametrize("usage", [None, {}, "much", 7])
async def test_an_answer_that_does_not_say_what_it_cost_is_not_counted(store: Store, usage: Any) -> None:
    await spend(store, usage)
    assert await ask(store, "SELECT * FROM usage") == []


def test_a_day_is_one_of_the_calendar() -> None:
    assert day_of(1_794_787_200_000) == "2026-11-16" and day_of(1_794_787_199_999) == "2026-11-15"
