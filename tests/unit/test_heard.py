"""What is kept of an agent's events: usage, mail that it took in, text that was cut short, and the calls that have no result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from keyturn import AgentFault, Ask, Began, Call, Delta, Done, Ended, Entry, Event, Notice, Reply, Row, Spent, Took
from shared.agent.events import Restarted, Thought
from shared.agent.turn import Result
from shared.context.marks import user_row
from shared.messages import Inbound, Source
from workers.agents.heard import INTERRUPTED, NOT_RUN, Heard

CALL, OTHER = Call("c1", "look"), Call("c2", "send")
CALLING = Entry("assistant", "", data={"tool_calls": [{"id": c.id, "name": c.name} for c in (CALL, OTHER)]})
ROW, DONE = Entry("assistant", "first"), Done((Reply("hi"),))
COUNTED = Entry("assistant", "first", data={"usage": {"input": 9}})
MAIL = {id: Inbound(id, f"evt_{id}", Source("webhook", "c1", user="u1"), f"text of {id}") for id in ("in_1", "in_2")}
FIRST, SECOND = (user_row(inbound) for inbound in MAIL.values())
BEGUN: Mapping[str, Any] = {"partial": True, "input": 40, "output": 3}


def heard(*events: Event, **about: Any) -> Heard:
    """A turn that has said this. Its inbox gave the two messages."""
    found = Heard(given=MAIL.get, **about)
    for event in events:
        found.take(event)
    return found


def tool(call: Call, text: str) -> Entry:
    return Entry("tool", text, data={"tool_call_id": call.id, "name": call.name})


@pytest.mark.parametrize(
    ("events", "spent"),
    [
        ([Spent({"input": 1}), Spent({"input": 2})], ({"input": 1}, {"input": 2})),
        ([Spent(BEGUN)], (BEGUN,)),  # a request whose end nobody heard
        ([Spent({"input": 1}), Spent(BEGUN)], ({"input": 1}, BEGUN)),
        ([Spent(BEGUN), Spent({"input": 1})], ({"input": 1},)),
        ([Spent(BEGUN), Row(COUNTED)], ()),  # the row says what it cost
        ([Spent(BEGUN), Row(ROW)], (BEGUN,)),
        ([Spent({"partial": False, "input": 1})], ({"partial": False, "input": 1},)),
    ],
)
@pytest.mark.parametrize("end", [DONE, Ask("q1", "May I?")], ids=["done", "a question"])
def test_what_a_request_has_cost_so_far_counts_only_where_nobody_said_what_it_cost(
    events: list[Event], spent: tuple[Any, ...], end: Event
) -> None:
    assert heard(*events, end).result().spent == spent


@pytest.mark.parametrize(
    ("said", "used", "output"),
    [
        ("x" * 400, {"input": 40, "output": 3}, 100),  # guessed by what it had said
        ("x", {"input": 40, "output": 300}, 300),
        ("x" * 400, {"input": 40}, 100),
    ],
)
def test_a_text_that_was_cut_short_carries_what_it_cost_by_then(said: str, used: dict[str, Any], output: int) -> None:
    kept = heard(Spent({**used, "partial": True}), Delta(said)).cut_short()
    [row] = kept.entries
    usage = row.data["usage"]
    assert (row.role, row.text, kept.spent) == ("assistant", said, ())
    assert usage["input"] == 40 and usage["total"] == 40 + usage["output"]
    assert output <= usage["output"] <= output * 1.5 or usage["output"] == output


def test_a_request_that_was_stopped_before_it_said_anything_counts_all_the_same() -> None:
    kept = heard(Spent({"input": 1}), Spent({"partial": True, "input": 40, "output": "?"})).cut_short()
    assert kept.entries == ()
    assert kept.spent == ({"input": 1}, {"partial": True, "input": 40, "output": 0, "total": 40})
    assert heard(Delta(" \n")).cut_short() == Result()


def test_text_that_became_a_row_or_began_again_is_not_kept_twice() -> None:
    assert heard(Delta("fir"), Row(ROW)).cut_short() == Result((ROW,))
    assert heard(Delta("old"), Restarted(), Delta(" new ")).cut_short() == Result((Entry("assistant", "new"),))
    assert heard(Thought("hm"), Notice("wait")).cut_short() == Result()  # a thought is not kept, and a notice not said


@pytest.mark.parametrize(
    ("events", "results"),
    [
        ([Row(CALLING)], [tool(CALL, NOT_RUN), tool(OTHER, NOT_RUN)]),
        ([Row(CALLING), Began(CALL)], [tool(CALL, INTERRUPTED), tool(OTHER, NOT_RUN)]),
        ([Row(CALLING), Began(CALL), Ended(CALL, True, "seen")], [tool(CALL, "seen"), tool(OTHER, NOT_RUN)]),
        ([Row(CALLING), Row(tool(OTHER, "sent"))], [tool(OTHER, "sent"), tool(CALL, NOT_RUN)]),
        ([Row(CALLING), Row(tool(CALL, "seen")), Row(tool(OTHER, "sent"))], [tool(CALL, "seen"), tool(OTHER, "sent")]),
    ],
)
def test_of_a_turn_that_is_cut_short_every_call_of_the_last_row_has_a_result(
    events: list[Event], results: list[Entry]
) -> None:
    assert heard(Row(ROW), *events).cut_short().entries == (ROW, CALLING, *results)


def test_a_call_with_an_id_of_an_earlier_row_has_no_result_of_that_one() -> None:
    """The ids of models are unique within a row only."""
    before: list[Event] = [Row(CALLING), Began(CALL), Ended(CALL, True, "seen")]
    before += [Row(tool(CALL, "seen")), Row(tool(OTHER, "sent"))]
    kept = heard(*before, Row(CALLING)).cut_short().entries
    assert [row.text for row in kept[-2:]] == [NOT_RUN, NOT_RUN]


def test_replies_become_rows_where_the_agent_yielded_none_and_no_reply_is_kept_twice() -> None:
    two = Done((Reply("hi"), Reply(""), Reply("there")))
    assert heard(two).result().entries == (Entry("assistant", "hi"), Entry("assistant", "there"))
    assert heard(Row(ROW), two).result().entries == (ROW,)
    earlier = heard(two, earlier=(Entry("assistant", "hi"),))  # an earlier attempt had finished its first part
    assert earlier.result().entries == (Entry("assistant", "hi"), Entry("assistant", "there"))
    calling = heard(two, earlier=(CALLING, tool(CALL, "hi"), tool(OTHER, "hi"))).result().entries
    assert calling[3:] == (Entry("assistant", "hi"), Entry("assistant", "there"))  # no answer was finished
    mail_only = heard(Took(("in_1",)), two).result().entries
    assert mail_only == (FIRST, Entry("assistant", "hi"), Entry("assistant", "there"))


def test_mail_that_the_agent_took_in_becomes_rows_and_ends_with_the_turn() -> None:
    taking: list[Event] = [Row(ROW), Took(("in_1",)), Took(("in_2",))]
    found = heard(*taking, DONE)
    assert found.shown == [FIRST, SECOND]
    assert found.result() == Result((ROW, FIRST, SECOND), (Reply("hi"),), took=("in_1", "in_2"))
    assert heard(*taking).cut_short() == Result((ROW, FIRST, SECOND), took=("in_1", "in_2"))
    asked = heard(*taking, Ask("q1", "May I?"), took=("in_0",)).result()
    assert asked.took == ("in_0", "in_1", "in_2") and asked.asks == (Ask("q1", "May I?"),)


@pytest.mark.parametrize("took", [("in_3",), ("in_1", "in_1"), ("in_1", "in_3"), ("in_0",)])
def test_no_mail_is_taken_in_that_the_inbox_did_not_give_or_that_was_taken_before(took: tuple[str, ...]) -> None:
    with pytest.raises(AgentFault, match="did not give"):
        heard(Took(took), took=("in_0",))
    with pytest.raises(AgentFault, match="did not give"):
        Heard().take(Took(("in_1",)))  # a turn without an inbox


def test_a_whole_result_is_kept_as_its_events_one_by_one_would_be() -> None:
    result = Result((ROW,), (Reply("hi"),), ({"input": 1}, BEGUN), took=("in_1",))
    found = heard()
    found.take_whole(result)
    assert found.result() == Result((FIRST, ROW), (Reply("hi"),), ({"input": 1}, BEGUN), took=("in_1",))
    asking = heard()
    asking.take_whole(Result((ROW,), (Reply("never said"),), asks=(Ask("q1", "May I?"), Ask("q2", "And this?"))))
    assert asking.result() == Result((ROW,), asks=(Ask("q1", "May I?"), Ask("q2", "And this?")))


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (Result(("text",)), "a Row whose entry is str"),  # type: ignore[arg-type]
        (Result(spent=("much",)), "a Spent whose usage is str"),  # type: ignore[arg-type]
        (Result(asks=(Ask("q", "a"), Ask("q", "b"))), "Ask twice with the id 'q'"),
        (Result(replies=("hi",)), "a Done whose reply is str"),  # type: ignore[arg-type]
    ],
)
def test_a_whole_result_that_breaks_the_contract_is_the_agents_fault(result: Result, fault: str) -> None:
    with pytest.raises(AgentFault, match=fault):
        heard().take_whole(result)


def test_a_call_may_begin_again_once_it_has_ended() -> None:
    again: list[Event] = [Began(CALL), Ended(CALL, False, "no"), Began(CALL), Ended(CALL, True, "yes")]
    assert heard(Row(CALLING), *again).cut_short().entries[1] == tool(CALL, "yes")
    assert heard(*again, DONE).result().replies == (Reply("hi"),)


def test_notices_are_said_before_the_replies_and_where_the_turn_ends_with_a_question() -> None:
    notices: list[Event] = [Notice("one"), Notice("two")]
    assert heard(*notices, DONE).result().replies == (Reply("one"), Reply("two"), Reply("hi"))
    assert heard(*notices, Ask("q1", "May I?")).result().replies == (Reply("one"), Reply("two"))
