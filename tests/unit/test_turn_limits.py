"""How much one turn may use, and what counts of a turn that was cut short."""

from __future__ import annotations

import math

import pytest

from shared.agent.events import Began, Call, Delta, Done, Ended, Row, Spent
from shared.messages import Entry, Reply
from workers.agents.heard import Heard
from workers.agents.tools.limits import Spending, TurnLimits


def test_a_turn_may_make_as_many_requests_as_the_limit_says() -> None:
    spending = Spending(TurnLimits(requests=2))
    assert [bool(spending.before_request()) for _ in range(3)] == [False, False, True]
    assert "more than 2 requests" in spending.before_request()


def test_a_turn_may_make_as_many_calls_as_the_limit_says_however_they_are_grouped() -> None:
    spending = Spending(TurnLimits(calls=3))
    assert [bool(spending.before_calls(n)) for n in (1, 2, 1)] == [False, False, True]
    assert Spending(TurnLimits(calls=3)).before_calls(4) != ""


def test_a_turn_that_has_used_its_tokens_makes_no_further_request() -> None:
    spending = Spending(TurnLimits(tokens=10))
    spending.used({"total": 9})
    assert spending.before_request() == ""
    spending.used({"total": 1})
    spending.used({})
    assert "this took 10 tokens, and 10 are the limit" in spending.before_request()


def test_a_turn_that_has_cost_its_limit_makes_no_further_request() -> None:
    spending = Spending(TurnLimits(cost_usd=0.5))
    spending.used({"cost": "estimated", "cost_usd": "0.4999"})
    spending.used({"cost": "unknown", "total": 10**9})
    assert spending.before_request() == ""
    spending.used({"cost": "estimated", "cost_usd": "0.0001"})
    assert "this cost 0.5000 US dollars, and 0.5 are the limit" in spending.before_request()


def test_what_earlier_attempts_of_a_turn_have_cost_counts() -> None:
    row = Entry("assistant", "", data={"usage": {"cost_usd": "2.25"}})
    assert "this cost 2.2500 US dollars" in Spending(TurnLimits(cost_usd=2), [row]).before_request()


def test_a_turn_that_took_its_time_makes_no_further_request(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("workers.agents.tools.limits.time.monotonic", lambda: now)
    spending = Spending(TurnLimits(seconds=5))
    now = 104.9
    assert spending.before_request() == ""
    now = 105.0
    assert "longer than 5 seconds" in spending.before_request()


def test_without_limits_nothing_ends_a_turn_but_requests_and_calls() -> None:
    assert TurnLimits() == TurnLimits(20, 50, math.inf, math.inf)


BEGUN = {"input": 7, "output": 1, "total": 8, "partial": True}


def heard(*events: object) -> Heard:
    found = Heard()
    for event in events:
        found.take(event)
    return found


def test_a_request_that_began_counts_if_nothing_says_what_it_cost_in_the_end() -> None:
    done = Done((Reply("hi"),))
    assert heard(Spent(BEGUN), done).result().spent == (BEGUN,)
    assert heard(Spent(BEGUN), Spent({"total": 9}), done).result().spent == ({"total": 9},)
    counted = Row(Entry("assistant", "hi", data={"usage": {"total": 9}}))
    assert heard(Spent(BEGUN), counted, done).result().spent == ()
    assert heard(Spent(BEGUN), Row(Entry("assistant", "hi")), done).result().spent == (BEGUN,)


def test_a_request_that_was_cut_short_counts_with_what_it_had_said() -> None:
    long = "many words " * 30
    [row] = heard(Spent(BEGUN), Delta(long)).cut_short().entries
    used = row.data["usage"]
    assert used["output"] >= 30 and used["total"] == 7 + used["output"]
    [row] = heard(Spent({**BEGUN, "output": 5}), Delta("a")).cut_short().entries
    assert row.data["usage"]["output"] == 5
    nothing_said = heard(Spent(BEGUN), Delta("  ")).cut_short()
    assert nothing_said.entries == () and nothing_said.spent == ({**BEGUN, "output": 1, "total": 8},)


def test_text_before_a_row_is_not_kept_beside_it() -> None:
    kept = heard(Delta("hel"), Row(Entry("assistant", "hello")), Delta(" wor")).cut_short()
    assert [row.text for row in kept.entries] == ["hello", "wor"]


def test_results_of_an_earlier_batch_are_not_given_to_a_later_one() -> None:
    call = Call("c1", "look")
    calling = Row(Entry("assistant", "", data={"tool_calls": [{"id": "c1", "name": "look"}]}))
    seen = Row(Entry("tool", "seen", data={"tool_call_id": "c1", "name": "look"}))
    kept = heard(calling, Began(call), Ended(call, True, "seen"), seen, calling).cut_short()
    assert kept.entries[-1].text.startswith("(Not run")
    kept = heard(calling, Began(call), Ended(call, True, "seen")).cut_short()
    assert kept.entries[-1].text == "seen"
