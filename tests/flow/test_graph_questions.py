"""A LangGraph graph that interrupts itself: the question parks the run, and the answer takes it up, in any process and at any time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from keyturn import Turn
from shared.agent.turn import Result, Said
from shared.errors import Permanent
from shared.pipeline import open_pipeline
from shared.settings import Settings
from tests.flow.test_asking import questions, say
from tests.store.books import ask
from tests.support.file_saver import FileSaver
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.reading import answer_of
from workers.agents.adapters.choice import of_library
from workers.agents.adapters.langgraph import CANNOT_ASK, FORGOTTEN, NOBODY_ANSWERED
from workers.agents.contract import Agent


class Shop:
    """A graph that looks at the price, asks, and then charges; it counts what it did."""

    def __init__(self, checkpointer: Any, question: Any = "Shall I charge 5 euros?") -> None:
        self.looked = 0
        self.charged: list[str] = []
        self._question = question
        builder = StateGraph(MessagesState)
        builder.add_node("look", self._look)
        builder.add_node("charge", self._charge)
        builder.add_edge(START, "look")
        builder.add_conditional_edges("look", self._next)
        self.graph = builder.compile(checkpointer=checkpointer)

    @property
    def agent(self) -> Agent:
        agent = of_library(self.graph)
        assert agent is not None
        return agent

    async def _look(self, state: MessagesState) -> dict[str, Any]:
        self.looked += 1
        said = [message for message in state["messages"] if message.type == "human"]
        if "tea" not in str(said[-1].text):
            return {"messages": [AIMessage(f"{len(said)} said: {said[-1].text}")]}
        usage: Any = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
        call = {"id": f"c{self.looked}", "name": "charge", "args": {"what": "tea"}}
        return {"messages": [AIMessage("", tool_calls=[call], usage_metadata=usage)]}

    def _next(self, state: MessagesState) -> str:
        last = state["messages"][-1]
        return "charge" if isinstance(last, AIMessage) and last.tool_calls else "__end__"

    async def _charge(self, state: MessagesState) -> dict[str, Any]:
        answer = interrupt(self._question)
        self.charged.append(answer)
        last = state["messages"][-1]
        assert isinstance(last, AIMessage)
        result = ToolMessage(f"charged: {answer}", tool_call_id=last.tool_calls[0]["id"])
        return {"messages": [result, AIMessage(f"done: {answer}")]}


def a_turn(text: str, run: str, **changes: Any) -> Turn:
    return replace(Turn("turn_1", key_of(), "ses_1", (), (an_inbound(text, event_id=run),), run=run), **changes)


def answered(asked: Result, text: str) -> dict[str, Said]:
    return {one.id: Said(text) for one in asked.asks}


async def test_a_question_of_a_graph_survives_a_restart_of_every_process_and_its_answer_takes_it_up(
    make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    file = tmp_path / "threads"
    async with open_pipeline(make_settings()) as pipe:
        shop = Shop(FileSaver(file))
        rig = Rig(pipe, shop.agent)
        assert await say(rig, "tea please") == "Shall I charge 5 euros?"
        assert await questions(rig) == ["open"] and shop.charged == []
        assert [name for name in await rig.residue() if ":turns:" in name] == []  # no lease, no mail, no worker
    async with open_pipeline(make_settings()) as pipe:
        shop = Shop(FileSaver(file))
        rig = Rig(pipe, shop.agent)
        assert await say(rig, "yes, do") == "done: yes, do"
        assert (shop.charged, shop.looked) == (["yes, do"], 0)
        assert await questions(rig) == ["answered"]
        assert await rig.transcript() == ["tea please", "Shall I charge 5 euros?", "yes, do", "done: yes, do"]
        [usage] = await ask(pipe.store, "SELECT requests, total FROM usage")
        assert (usage["requests"], usage["total"]) == (1, 9)  # of the turn that asked
        assert (
            await say(rig, "hello") == "2 said: hello"
        )  # the graph remembers, and the answer was no message of its own


async def test_another_message_while_a_graphs_question_is_open_is_answered_and_the_question_stays(rig: Rig) -> None:
    shop = Shop(InMemorySaver(), {"question": "Which?", "choices": ["red", "blue"]})
    rig.agent = shop.agent
    await say(rig, "tea please")
    assert await say(rig, "hello") == "2 said: hello"  # with the history, on a thread of its own
    assert await questions(rig) == ["open"]
    assert await say(rig, "red") == "done: red"
    assert shop.charged == ["red"]


async def test_while_another_run_waits_for_a_person_a_turn_leaves_its_thread_alone() -> None:
    shop = Shop(InMemorySaver())
    asked = await answer_of(shop.agent, a_turn("tea please", "run_1"))
    between = await answer_of(shop.agent, a_turn("hello", "run_2", asking=("run_1",)))
    assert [reply.text for reply in between.replies] == ["1 said: hello"]
    more = await answer_of(shop.agent, a_turn("more tea", "run_3", asking=("run_1",)))  # it asks on its own thread
    for run, result, word in (("run_1", asked, "yes"), ("run_3", more, "no")):
        done = await answer_of(shop.agent, a_turn(word, run, asking=(run,), answers=answered(result, word)))
        assert [reply.text for reply in done.replies] == [f"done: {word}"]
    assert shop.charged == ["yes", "no"]


async def test_a_question_that_nobody_waits_for_any_more_is_in_nobodys_way() -> None:
    shop = Shop(InMemorySaver())
    await answer_of(shop.agent, a_turn("tea please", "run_1"))  # its turn was stopped, or set aside
    result = await answer_of(shop.agent, a_turn("hello", "run_2"))
    assert [reply.text for reply in result.replies] == ["2 said: hello"]


async def test_a_graph_whose_question_nobody_answered_in_time_does_not_go_on_and_says_so() -> None:
    shop = Shop(InMemorySaver())
    asked = await answer_of(shop.agent, a_turn("tea please", "run_1"))
    answers = {one.id: Said(is_expired=True) for one in asked.asks}
    for _ in range(2):  # the second after a crash
        over = await answer_of(shop.agent, a_turn("(late)", "run_1", asking=("run_1",), answers=answers))
        assert [reply.text for reply in over.replies] == [NOBODY_ANSWERED]
        assert [row.text for row in over.entries] == [NOBODY_ANSWERED] and over.asks == ()
    assert shop.charged == []
    result = await answer_of(shop.agent, a_turn("hello", "run_2"))
    assert [reply.text for reply in result.replies] == ["2 said: hello"]


async def test_a_worker_that_dies_before_it_has_asked_asks_the_same_question_and_nothing_runs_twice() -> None:
    shop = Shop(InMemorySaver())
    turn = a_turn("tea please", "run_1")
    first, second = await answer_of(shop.agent, turn), await answer_of(shop.agent, turn)
    assert first.asks == second.asks and len(first.asks) == 1 and shop.looked == 1


async def test_a_worker_that_dies_after_the_graph_went_on_says_what_it_said_and_nothing_runs_twice() -> None:
    shop = Shop(InMemorySaver())
    asked = await answer_of(shop.agent, a_turn("tea please", "run_1"))
    turn = a_turn("yes", "run_1", answers=answered(asked, "yes"))
    for _ in range(2):
        result = await answer_of(shop.agent, turn)
        assert [reply.text for reply in result.replies] == ["done: yes"]
    assert shop.charged == ["yes"]


async def test_each_question_of_a_node_gets_its_own_answer_and_none_that_was_given_to_another() -> None:
    async def both(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{interrupt('Sugar?')}, {interrupt('Milk?')}")]}

    graph = (
        StateGraph(MessagesState).add_node("both", both).add_edge(START, "both").compile(checkpointer=InMemorySaver())
    )
    agent = of_library(graph)
    assert agent is not None
    sugar = await answer_of(agent, a_turn("tea", "run_1"))
    turn = a_turn("two", "run_1", answers=answered(sugar, "two"))
    milk, again = (
        await answer_of(agent, turn),
        await answer_of(agent, turn),
    )  # the second attempt must not answer "Milk?"
    assert [one.text for one in (*sugar.asks, *milk.asks, *again.asks)] == ["Sugar?", "Milk?", "Milk?"]
    answers = {**answered(sugar, "two"), **answered(milk, "none")}
    done = await answer_of(agent, a_turn("none", "run_1", answers=answers))
    assert [reply.text for reply in done.replies] == ["two, none"]


async def test_questions_of_nodes_that_run_at_once_are_asked_together_and_answered_each_by_its_own() -> None:
    def asking(what: str) -> Any:
        async def node(state: MessagesState) -> dict[str, Any]:
            return {"messages": [AIMessage(f"{what} {interrupt(f'{what}?')}")]}

        return node

    builder = StateGraph(MessagesState)
    for what in ("sugar", "milk"):
        builder.add_node(what, asking(what)).add_edge(START, what)
    agent = of_library(builder.compile(checkpointer=InMemorySaver()))
    assert agent is not None
    asked = await answer_of(agent, a_turn("tea", "run_1"))
    by_text = {one.text: one.id for one in asked.asks}
    assert set(by_text) == {"sugar?", "milk?"}
    answers = {by_text["sugar?"]: Said("two"), by_text["milk?"]: Said("none")}
    done = await answer_of(agent, a_turn("none", "run_1", answers=answers))
    assert {row.text for row in done.entries} == {"sugar two", "milk none"}


@pytest.mark.parametrize(
    ("value", "text", "choices"),
    [
        ("Sure?", "Sure?", ()),
        ({"question": "Which?", "choices": ["red", "blue"]}, "Which?", ("red", "blue")),
        ({"question": "Which?", "choices": "red"}, "Which?", ()),
        ({"action": "pay", "euro": 5}, '{"action":"pay","euro":5}', ()),
        ("", "The agent waits for an answer.", ()),
    ],
)
async def test_a_person_reads_the_question_in_the_form_that_the_graph_gave_it(
    value: Any, text: str, choices: tuple[str, ...]
) -> None:
    result = await answer_of(Shop(InMemorySaver(), value).agent, a_turn("tea please", "run_1"))
    [asked] = result.asks
    assert (asked.text, asked.choices, asked.expires, asked.call) == (text, choices, None, None)


async def test_a_choice_reaches_the_graph_as_the_graph_wrote_it(rig: Rig) -> None:
    shop = Shop(InMemorySaver(), {"question": "Which?", "choices": ["Red", "Blue"]})
    rig.agent = shop.agent
    assert await say(rig, "tea please") == "Which?\n(Red / Blue)"
    assert await say(rig, "blue") == "done: Blue"
    assert shop.charged == ["Blue"]


async def test_a_graph_without_a_checkpointer_that_asks_is_set_aside_and_says_so() -> None:
    with pytest.raises(Permanent, match="needs a checkpointer") as refused:
        await answer_of(Shop(None).agent, a_turn("tea please", "run_1"))
    assert refused.value.notice == CANNOT_ASK


async def test_an_answer_whose_question_the_checkpointer_has_lost_is_set_aside_and_says_so(rig: Rig) -> None:
    rig.agent = Shop(InMemorySaver()).agent
    await say(rig, "tea please")
    shop = Shop(InMemorySaver())  # memory does not outlive its process
    rig.agent = shop.agent
    assert await say(rig, "yes") == FORGOTTEN
    assert (shop.looked, shop.charged) == (0, [])
    assert await say(rig, "hello") == "1 said: hello"
