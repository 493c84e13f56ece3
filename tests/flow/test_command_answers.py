"""What commands answer, word for word, in the course of a conversation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.pipeline import open_pipeline
from shared.settings import LlmSettings, Settings
from shared.store.usage import Whose
from tests.flow.test_commands import say
from tests.store.books import write
from tests.support.pipe import Rig, key_of
from tests.support.servers import Databases
from workers.commands.memory import USAGE
from workers.side.budget import day_at

NO_GOAL = "This conversation has no goal. /goal <text> sets one."
CHOICE = " /model <name> switches to one of: m2, m3; /model default back."


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


async def talk(rig: Rig, *said: tuple[str, str]) -> None:
    for text, told in said:
        assert await say(rig, text) == told, text


async def test_a_goal_is_shown_with_how_it_stands(rig: Rig) -> None:
    await talk(
        rig,
        ("/goal", NO_GOAL),
        ("/goal clear", NO_GOAL),
        ("/goal DONE", NO_GOAL),
        ("/goal resume", NO_GOAL),
        ("/goal Ship it", "The goal of this conversation: Ship it"),
        ("/goal", "Goal (active): Ship it"),
        ("/goal Blocked", "The goal is blocked."),
        ("/goal", "Goal (blocked): Ship it"),
        ("/goal resume", "The goal is active."),
        ("/goal", "Goal (active): Ship it"),
        ("/goal completed", "The goal is completed."),
        ("/goal", "Goal (completed): Ship it"),
        ("/goal done it all", "The goal of this conversation: done it all"),
        ("/goal", "Goal (active): done it all"),
        ("/goal Clear", "The goal is cleared."),
        ("/goal", NO_GOAL),
    )


async def test_a_model_is_shown_and_switched_by_its_name_and_back(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(llm=LlmSettings(model="Big", models=("m2", "m3")))) as pipe:
        rig = Rig(pipe)
        await talk(
            rig,
            ("/model", f"Big answers here.{CHOICE}"),
            ("/model M3", "m3 answers here from now on."),
            ("/model", f"m3 answers here.{CHOICE}"),
            ("/model nine", "That is not one of the models here: Big, m2, m3."),
            ("/model", f"m3 answers here.{CHOICE}"),
            ("/model bIG", "Big answers here from now on."),
            ("/model", f"Big answers here.{CHOICE}"),
            ("/model m2", "m2 answers here from now on."),
            ("/model Reset", "Big answers here from now on."),
            ("/model", f"Big answers here.{CHOICE}"),
        )
        session, _ = await pipe.store.transcript.load(key_of(), "")
        insert = "INSERT INTO facts (scope, name, value) VALUES (:id, 'model', 'gone')"
        await write(pipe.store, insert, id=session.id)
        await talk(rig, ("/model", f"Big answers here.{CHOICE}"))  # the settings no longer list it


async def test_where_there_is_one_model_no_choice_is_offered(rig: Rig) -> None:
    await talk(
        rig,
        ("/model", "echo answers here."),
        ("/model m2", "That is not one of the models here: echo."),
        ("/model echo", "echo answers here from now on."),
    )


async def test_a_note_that_is_not_named_rightly_is_not_forgotten(rig: Rig) -> None:
    await say(rig, "hello")
    await rig.pipe.store.memory.add("agent:main:webhook:other:memory:u=u1", key_of(), "likes tea")
    listed = "1. likes tea\n\n/memory forget N deletes one."
    await talk(
        rig,
        ("/memory", listed),
        ("/memory forget", USAGE),
        ("/memory forget  ", USAGE),
        ("/memory 1", USAGE),
        ("/memory forget -1", "There is no note -1."),
        ("/memory forget 0", "There is no note 0."),
        ("/memory forget 2", "There is no note 2."),
        ("/memory forget likes tea", "There is no note likes tea."),
        ("/memory forget " + "x" * 30, f"There is no note {'x' * 20}."),
        ("/memory", listed),
        ("/memory FORGET 1", "I have forgotten: likes tea"),
        ("/memory", "I have noted nothing."),
    )


async def test_what_is_no_command_is_answered_with_the_nearest_one_that_help_shows(rig: Rig) -> None:
    await talk(
        rig,
        ("/statsu", "I do not know /statsu. Did you mean /status?"),
        ("/startt", "I do not know /startt. Did you mean /status?"),  # /start is for clients alone
        ("/zzz", "I do not know /zzz. Send /help for what I understand."),
        ("/undo now", "/undo takes no arguments."),
        ("/answer", "Please say what you answer: /answer, and the number of the question if there are several."),
    )


@pytest.mark.parametrize(
    ("command", "limit", "told"),
    [
        ("steer", 20_000, None),
        ("answer", 4096, "There is no open question here."),
        ("goal", 4000, None),
        ("title", 256, "A title has at most 100 characters; this one has 256."),
    ],
)
async def test_a_command_takes_as_much_as_its_words_may_need(
    rig: Rig, command: str, limit: int, told: str | None
) -> None:
    refused = f"/{command} takes at most {limit:,} characters; these are {limit + 1:,}."
    assert await say(rig, f"/{command} {'x' * (limit + 1)}") == refused
    said = await say(rig, f"/{command} {'x' * limit}")
    assert said == told if told is not None else "takes at most" not in said and "x" * 1000 in said


@pytest.mark.parametrize(
    ("about", "costs"),
    [
        ({"cost": "estimated", "cost_usd": "0.25"}, "about $0.2500"),
        ({"cost": "unknown", "cost_usd": None}, "cost unknown"),
    ],
)
async def test_usage_says_what_is_known_of_the_cost(rig: Rig, about: dict[str, Any], costs: str) -> None:
    nothing = "This conversation: nothing yet\nToday: nothing yet\nAll of yours: nothing yet"
    await talk(rig, ("/usage", nothing))
    usage = {"model": "m", "requests": 2, "input": 1000, "output": 200, "total": 1200, **about}
    day = day_at(0, rig.pipe.settings)
    await rig.pipe.store.usage.aside(usage, Whose("ses_old", "webhook:u=u1", "main"), day)
    spent = f"1,200 tokens (1,000 in, 200 out), 2 requests, {costs}"
    await talk(rig, ("/usage", f"This conversation: nothing yet\nToday: nothing yet\nAll of yours: {spent}"))
