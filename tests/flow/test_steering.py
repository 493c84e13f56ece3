"""Messages that the `llm` agent takes in while its turn runs: before a request, before a tool, and at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from keyturn import Event, Inbound, Result, Turn
from shared.agent.inbox import EmptyInbox
from shared.errors import Outage, Stopped
from shared.settings import Settings
from tests.flow.test_busy import in_mode, two_processes, until
from tests.flow.test_tools import a_turn, calling, config, says
from tests.support import toolbox
from tests.support.openai import BROKEN, Asked, Provider, a_call, open_provider
from tests.support.pipe import an_inbound
from workers.agents.llm import LlmAgent
from workers.agents.reading import Reading
from workers.agents.tools.loop import CAME_IN, TAKEN_AT_MOST

SECONDS = 60
TWO_SENDS = calling(a_call("send", '{"to": "a"}', "c1"), a_call("send", '{"to": "b"}', "c2"))


@pytest.fixture(autouse=True)
def forgotten() -> None:
    toolbox.forget()


class Coming(EmptyInbox):
    """Gives texts as soon as `when` says that they have come."""

    def __init__(self, *texts: str, when: Callable[[], object] = lambda: True, endless: bool = False) -> None:
        self.left = [an_inbound(text) for text in texts]
        self.taken: dict[str, Inbound] = {}
        self._when = when
        self._endless = endless

    def waiting(self) -> int:
        return len(self.left) if self._when() else 0

    async def take(self, most: int = 3) -> tuple[Inbound, ...]:
        given, self.left = tuple(self.left[:most]), self.left[most:]
        if self._endless:
            self.left.append(an_inbound("and more"))
        self.taken |= {inbound.id: inbound for inbound in given}
        return given

    def given(self, id: str) -> Inbound | None:
        return self.taken.get(id)


async def result_of(provider: Provider, inbox: Coming, **changes: Any) -> Result:
    async with asyncio.timeout(SECONDS):
        return await Reading(LlmAgent(config(provider, **changes)), replace(a_turn(), inbox=inbox)).result()


def rows_of(result: Result) -> list[tuple[str, str]]:
    return [(row.role, row.text) for row in result.entries]


async def test_N71_ag27_a_message_during_a_tool_is_in_the_next_request_once_and_later_tools_do_not_run() -> None:
    inbox = Coming("to the left", when=lambda: toolbox.calls)
    async with open_provider(answer=says(TWO_SENDS, "done")) as provider:
        result = await result_of(provider, inbox)
    assert toolbox.calls == [("send", "a")]
    sent = provider.requests[1].messages
    assert sent[-3:] == [("tool", "sent to a"), ("tool", CAME_IN), ("user", "to the left")]
    assert rows_of(result)[-4:] == [*sent[-3:], ("assistant", "done")]
    assert result.took == tuple(inbox.taken) and [reply.text for reply in result.replies] == ["done"]


async def test_N72_ag28_a_message_during_the_final_text_is_answered_by_one_more_request() -> None:
    async with open_provider(answer=says("first", "second")) as provider:
        result = await result_of(provider, Coming("wait", when=lambda: provider.requests))
    assert [reply.text for reply in result.replies] == ["first", "second"]
    assert rows_of(result) == [("assistant", "first"), ("user", "wait"), ("assistant", "second")]
    assert provider.requests[1].messages[-2:] == [("assistant", "first"), ("user", "wait")]


async def test_N73_five_messages_reach_the_model_in_order_three_at_a_time() -> None:
    inbox = Coming(*"12345")
    async with open_provider(answer=says("first", "second")) as provider:
        result = await result_of(provider, inbox)
    assert [text for _, text in provider.requests[0].messages[-4:]] == ["hello", "1", "2", "3"]
    assert [text for _, text in provider.requests[1].messages[-2:]] == ["4", "5"]
    assert result.took == tuple(inbox.taken) and inbox.left == []


async def test_N78_endless_messages_end_a_turn_after_a_limited_number_of_requests() -> None:
    inbox = Coming("more", when=lambda: provider.requests, endless=True)
    async with open_provider(answer=says("again")) as provider:
        result = await result_of(provider, inbox)
    assert len(provider.requests) == TAKEN_AT_MOST + 1 and len(result.took) == TAKEN_AT_MOST
    assert inbox.left  # it is still mail


async def test_N79_a_message_during_a_tool_that_fails_is_answered_in_the_same_turn() -> None:
    inbox = Coming("never mind", when=lambda: toolbox.calls)
    answers = says(calling(a_call("fail", '{"reason": "no such thing"}')), "done")
    async with open_provider(answer=answers) as provider:
        result = await result_of(provider, inbox)
    assert toolbox.calls == [("fail", "no such thing")]
    assert provider.requests[1].last == "never mind" and [reply.text for reply in result.replies] == ["done"]


@pytest.mark.parametrize("failure", ["an error", "an empty answer"])
async def test_N79_a_message_during_a_request_that_fails_is_answered_in_the_same_turn(
    make_settings: Callable[..., Settings], failure: str
) -> None:
    """The turn is tried again, and its next request shows both."""
    troubles = [BROKEN] if failure == "an error" else []
    answer = says("done") if troubles else says({"content": ""}, "done")
    async with open_provider(*troubles, answer=answer) as provider:
        provider.gate = asyncio.Event()
        agent = Noting(config(provider))
        settings = make_settings(**in_mode("steer", titles=False, backoff_seconds=0.05))
        async with two_processes(settings, agent) as two:
            running = await two.say("work")
            await until(lambda: provider.requests)
            more = await two.say("hurry up")
            await until(agent.turns[0].inbox.waiting)
            provider.gate.set()
            assert await two.ended(running, more) == [("answered", None), ("merged", None)]
            assert await two.rig.transcript() == ["work", "hurry up", "done"]
    assert provider.requests[-1].messages[-2:] == [("user", "work"), ("user", "hurry up")]


async def test_N80_ag32_a_message_at_the_limit_of_requests_gets_one_more() -> None:
    inbox = Coming("stop that", when=lambda: len(toolbox.calls) >= 2)
    async with open_provider(answer=says(calling(a_call("add", '{"a": 1}')))) as provider:
        result = await result_of(provider, inbox, max_requests=2)
    assert len(provider.requests) == 3 and provider.requests[2].last == "stop that"
    assert "more than 2 requests" in result.replies[-1].text and len(result.took) == 1
    assert ("user", "stop that") in rows_of(result)


async def test_ag30_a_message_whose_request_failed_is_still_mail() -> None:
    inbox = Coming("lost?", when=lambda: toolbox.calls)
    answers = says(calling(a_call("add", '{"a": 1}')), "never")
    async with open_provider(None, BROKEN, answer=answers) as provider:
        reading = Reading(LlmAgent(config(provider)), replace(a_turn(), inbox=inbox))
        with pytest.raises(Outage):
            await reading.result()
    assert len(provider.requests) == 2 and reading._heard.cut_short().took == ()


async def test_what_was_taken_stays_taken_when_the_turn_is_stopped() -> None:
    inbox = Coming("and this")
    async with open_provider() as provider:
        provider.pause = asyncio.Event()
        reading = Reading(LlmAgent(config(provider)), replace(a_turn(), inbox=inbox), lambda event: seen.append(event))
        seen: list[object] = []
        running = asyncio.create_task(reading.result())
        await until(lambda: len(seen) > 2)
        reading.stop()
        with pytest.raises(Stopped) as stopped:
            await running
    assert stopped.value.kept is not None and stopped.value.kept.took == tuple(inbox.taken)
    assert rows_of(stopped.value.kept)[0] == ("user", "and this")


async def test_Q5_a_message_steers_the_models_turn_in_another_process(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the tool hangs, the sender says something: the tool ends, and the next request shows it."""

    def answer(asked: Asked) -> str | dict[str, Any]:
        return "done" if asked.last == "hurry up" else calling(a_call("slow", '{"n": 1}'))

    async with open_provider(answer=answer) as provider:
        agent = Noting(config(provider))
        monkeypatch.setattr(toolbox, "release", asyncio.Event())  # of this test's event loop
        async with two_processes(make_settings(**in_mode("steer", titles=False)), agent) as two:
            running = await two.say("work")
            await until(lambda: toolbox.calls)
            more = await two.say("hurry up")
            await until(agent.turns[0].inbox.waiting)
            toolbox.release.set()
            assert await two.ended(running, more) == [("answered", None), ("merged", None)]
            assert await two.rig.transcript() == ["work", "", "slow 1", "hurry up", "done"]
    assert len(provider.requests) == 2 and provider.requests[1].last == "hurry up"


class Noting(LlmAgent):
    """Keeps the turns that it is given."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.turns: list[Turn] = []

    def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        return super().run(turn)
