"""A conversation with a goal goes on by itself: step by step, a bounded number in a row, until /stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.errors import CannotDo
from shared.pipeline import open_pipeline
from shared.settings import Settings
from shared.settings.background import BackgroundSettings
from shared.tasks.goal import go_on
from tests.flow.test_background_tasks import ASKER, has_rows
from tests.flow.test_own_tools import calling, config
from tests.store.books import ask
from tests.support.openai import Asked, a_call, open_provider
from tests.support.pipe import Rig, control_key, key_of
from tests.support.working import working
from workers.agents.llm import LlmAgent

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
BOUNDS = BackgroundSettings(goal_steps=2)


def answer(asked: Asked) -> str | dict[str, Any]:
    if asked.last == "please" or asked.last.startswith("[Step"):
        return calling(a_call("goal_go_on", '{"handover": "count on"}'))
    return "that was one" if asked.last.startswith("You go on") else f"over: {asked.last}"


async def test_a_conversation_with_a_goal_goes_on_by_itself_for_a_bounded_number_of_steps(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_provider(answer=answer) as provider:
        settings = config(provider).model_copy(update={"own_tools": ("goal",)})
        async with open_pipeline(make_settings(llm=settings, titles=False, background=BOUNDS)) as pipe:
            rig = Rig(pipe)
            async with working(pipe, LlmAgent(settings)):
                await rig.accept("please")
                assert "this conversation has no goal" in (await has_rows(rig, 4))[3]
                await rig.accept("/goal count to three")
                await rig.accept("please")
                rows = (await has_rows(rig, 6 + 4 + 4 + 4))[6:]
    step = "[Step {} of at most 2 towards the goal]\ncount on"
    first, second, third = rows[:4], rows[4:8], rows[8:]
    assert (first[0], first[3], second[0], third[0]) == ("please", "that was one", step.format(1), step.format(2))
    assert third[3] == "over: Not done: 2 steps in a row are the most: tell the user how far you came."


async def test_N67_a_turn_at_its_limit_goes_on_by_itself_towards_an_active_goal_a_bounded_number_of_times(
    make_settings: Callable[..., Settings],
) -> None:
    """The chat is told of the limit only when it does not go on."""
    limited = {"own_tools": ("goal",), "tools": ("tests.support.toolbox",), "max_requests": 1}
    async with open_provider(answer=lambda _: calling(a_call("add", '{"a": 1}'))) as provider:
        settings = config(provider).model_copy(update=limited)
        async with open_pipeline(make_settings(llm=settings, titles=False, background=BOUNDS)) as pipe:
            rig = Rig(pipe)
            async with working(pipe, LlmAgent(settings)):
                await rig.accept("please")
                before = await has_rows(rig, 4)
                await rig.accept("/goal count to three")
                await rig.accept("please")
                rows = (await has_rows(rig, 6 + 3 * 4))[6:]
            told = await ask(pipe.store, "SELECT payload FROM outbox ORDER BY id")
    reason = "I stopped: this took more than 1 request to the model"
    assert before[3].startswith(reason) and [row.startswith(reason) for row in rows] == [False, False, False, True] * 3
    asked = [rows[0], *[row.splitlines()[0] for row in (rows[4], rows[8])]]
    assert asked == ["please", *[f"[Step {n} of at most 2 towards the goal]" for n in (1, 2)]]
    assert [reason in part["payload"] for part in told] == [True, False, True]


async def test_a_step_is_accepted_once_and_stop_drops_it(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(titles=False, background=BOUNDS)) as pipe:
        rig = Rig(pipe)
        await rig.accept("/goal count")
        await rig.run_turns()
        assert await go_on(pipe, ASKER, "again", "evt_1") == 1
        assert [await go_on(pipe, ASKER, "again", "goal:1:x") for _ in range(2)] == [2, 2]  # the same call twice
        with pytest.raises(CannotDo, match="you go on already"):
            await go_on(pipe, ASKER, "something else, too", "goal:1:x")
        with pytest.raises(CannotDo, match="2 steps in a row"):
            await go_on(pipe, ASKER, "again", "goal:2:x")
        await rig.accept("/stop")
        _, lease = await rig.start(pipe.control, control_key(key_of()))
        assert lease is not None
        await rig.turns(lease)
        await rig.run_turns()
        ends = await ask(pipe.store, "SELECT state FROM inbox WHERE event_id LIKE 'goal:%'")
    assert [row["state"] for row in ends] == ["superseded"] * 2


async def test_a_model_that_goes_on_twice_in_one_answer_leads_to_one_step(
    make_settings: Callable[..., Settings],
) -> None:
    calls = [a_call("goal_go_on", f'{{"handover": "way {n}"}}', id=f"call_{n}") for n in range(2)]

    def twice(asked: Asked) -> str | dict[str, Any]:
        return calling(*calls) if asked.last == "please" else "that was one"

    async with open_provider(answer=twice) as provider:
        settings = config(provider).model_copy(update={"own_tools": ("goal",)})
        async with open_pipeline(make_settings(llm=settings, titles=False, background=BOUNDS)) as pipe:
            rig = Rig(pipe)
            async with working(pipe, LlmAgent(settings)):
                for text in ("/goal find a way", "please"):
                    await rig.accept(text)
                rows = await has_rows(rig, 2 + 5 + 2)
            steps = await ask(pipe.store, "SELECT id FROM inbox WHERE event_id LIKE 'goal:%'")
    assert rows[4] == "You go on when you have answered: step 1." and len(steps) == 1
    assert rows[5] == "Not done: you go on already when you have answered, with what you handed over first."
    assert rows[7] == "[Step 1 of at most 2 towards the goal]\nway 0"
