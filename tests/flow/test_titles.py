"""Automatic titles: made aside after the first answer, once, and never in place of a person's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from shared.agent.turn import Result, Turn
from shared.context.title import first_words
from shared.errors import Transient
from shared.messages import Entry
from shared.pipeline import open_pipeline
from shared.settings import Settings
from shared.store.usage import SpentInAll, Whose
from tests.store.books import ask
from tests.support.pipe import Rig, key_of
from tests.support.working import working
from workers.agents.capabilities import Answer
from workers.agents.results import answered
from workers.side import titles
from workers.side.titles import Titling, cleaned
from workers.turn.take import take_turns


class Model:
    """An agent that is also asked aside; `gate` holds its titles back."""

    def __init__(self, title: str = "A fine title", gate: asyncio.Event | None = None) -> None:
        self.title = title
        self.gate = gate
        self.asked: list[Sequence[Entry]] = []

    async def run(self, turn: Turn) -> Result:
        return answered(f"answer to {turn.mail[0].text}")

    async def ask(self, rows: Sequence[Entry], system_prompt: str) -> Answer:
        self.asked.append(rows)
        if self.gate is not None:
            await self.gate.wait()
        if self.title == "fail":
            raise Transient("no")
        return Answer(self.title, "", {"model": "m", "requests": 1, "input": 3, "output": 2, "total": 5})


class Hands:
    """Turns with titles, and a wait for the titles to be there."""

    def __init__(self, rig: Rig, model: Model | None) -> None:
        self.rig = rig
        self.titling = Titling(rig.pipe, model)
        rig.agent = model or rig.agent
        self.model = model

    async def say(self, text: str, chat: str = "c1") -> str:
        await self.rig.accept(text, chat=chat)
        parts = replace(self.rig.parts(), side_model=self.model, titles=self.titling)
        await take_turns(await self.rig.lease(key_of(chat)), parts)
        return (await self.rig.pipe.store.outbox.open_parts(f"to:webhook:{chat}", 1000))[-1].text

    async def settled(self, chat: str = "c1") -> str | None:
        await asyncio.gather(*self.titling._tasks)
        row = await self.rig.pipe.store.sessions.find(key_of(chat))
        assert row is not None
        title: str | None = row["title"]
        return title


async def test_the_model_is_asked_once_after_the_first_answer_and_what_it_cost_is_counted(rig: Rig) -> None:
    hands = Hands(rig, model := Model("**A fine title**"))
    assert await hands.say("hello") == "answer to hello"
    assert await hands.settled() == "A fine title"
    await hands.say("and again")
    assert await hands.settled() == "A fine title"
    [rows] = model.asked
    assert [(row.role, row.text) for row in rows] == [
        ("user", "hello"),
        ("assistant", "answer to hello"),
        ("user", titles.PROMPT),
    ]
    session = await rig.pipe.store.sessions.find(key_of())
    assert session is not None
    spent, last_prompt = await rig.pipe.store.usage.of_session(session["id"])
    assert spent == SpentInAll(requests=1, input=3, output=2, total=5) and last_prompt == 0


async def test_of_a_long_message_the_model_is_shown_the_beginning(rig: Rig) -> None:
    hands = Hands(rig, model := Model())
    await hands.say("x" * (titles.SHOWN + 1))
    assert await hands.settled() == "A fine title"
    assert [len(row.text) for row in model.asked[0]][:2] == [titles.SHOWN] * 2


@pytest.mark.parametrize(("rows", "titled"), [(titles.BEGINNING, 1), (titles.BEGINNING + 1, 0)])
async def test_a_conversation_that_others_began_long_ago_gets_no_title(rig: Rig, rows: int, titled: int) -> None:
    hands = Hands(rig, model := Model())
    session, _ = await rig.pipe.store.transcript.load(key_of(), "")
    whose, said = Whose(session.id, "", "main"), Entry("user", "hello")
    hands.titling.after(replace(session, message_count=rows), lambda: whose, said, None)
    await asyncio.gather(*hands.titling._tasks)
    assert len(model.asked) == titled


async def test_no_reply_waits_for_a_title(rig: Rig) -> None:
    gate = asyncio.Event()
    hands = Hands(rig, Model(gate=gate))
    assert await hands.say("hello") == "answer to hello"
    assert await hands.say("more") == "answer to more"
    gate.set()
    assert await hands.settled() == "A fine title"


@pytest.mark.parametrize("model", [True, False])
async def test_N56_a_persons_title_is_kept_whatever_it_looks_like(rig: Rig, model: bool) -> None:
    """A generated title is cleaned before it is kept; one that a person chose is never touched."""
    gate = asyncio.Event()
    hands = Hands(rig, Model(gate=gate) if model else None)
    await hands.say("/title <think>mine</think>")
    await hands.say("hello")
    gate.set()
    assert await hands.settled() == "<think>mine</think>"


async def test_a_title_given_while_the_model_thinks_wins(rig: Rig) -> None:
    gate = asyncio.Event()
    hands = Hands(rig, Model(gate=gate))
    await hands.say("hello")
    await hands.say("/title mine")
    gate.set()
    assert await hands.settled() == "mine"


@pytest.mark.parametrize("said", ["fail", "<think>only thoughts</think>", '""', "<reasoning>cut off"])
async def test_N56_a_model_that_gives_none_leaves_the_first_words(rig: Rig, said: str) -> None:
    hands = Hands(rig, Model(said))
    await hands.say("what is   the weather\nin Oslo")
    assert await hands.settled() == "what is the weather in Oslo"


async def test_without_a_model_the_first_words_serve_also_after_new(rig: Rig) -> None:
    hands = Hands(rig, None)
    await hands.say("what is the weather in Oslo tomorrow at noon then")
    assert await hands.settled() == "what is the weather in Oslo tomorrow at…"
    await hands.say("/new")
    await hands.say("other words")
    await hands.say("more words")
    assert await hands.settled() == "other words"


async def test_where_too_many_titles_are_under_way_the_first_words_serve_and_nothing_waits(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(titles, "MOST", 2)
    gate = asyncio.Event()
    hands = Hands(rig, model := Model(gate=gate))
    for n in range(6):
        await hands.say(f"hello from {n}", chat=f"c{n}")
    assert len(hands.titling._tasks) == 2
    gate.set()
    found = [await hands.settled(f"c{n}") for n in range(6)]
    assert found == ["A fine title", "A fine title", *(f"hello from {n}" for n in range(2, 6))]
    assert len(model.asked) == 2


@pytest.mark.parametrize(("on", "title"), [(True, "hello there"), (False, None)])
async def test_a_worker_titles_its_sessions_unless_told_not_to(
    make_settings: Callable[..., Settings], on: bool, title: str | None
) -> None:
    async with open_pipeline(make_settings(titles=on)) as pipe, working(pipe):
        await Rig(pipe).accept("hello there")
        async with asyncio.timeout(30):
            while not (rows := await ask(pipe.store, "SELECT title FROM sessions")):
                await asyncio.sleep(0.02)
    assert rows == [{"title": title}]


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Weather in Oslo", "Weather in Oslo"),
        ('<think>hm</think>\n\n"Weather in Oslo"\n', "Weather in Oslo"),
        ("<THINKING a='b'>x\ny</THINKING>Title: **Weather**", "Weather"),
        ("标题：天气", "天气"),
        ("<b>Bold</b> move", "Bold move"),
        ("x" * 100, "x" * 59 + "…"),
        ("\x07bell\u202e", "bell"),
        ("<think>never closed", ""),
        ("", ""),
    ],
)
def test_N56_a_generated_title_is_one_short_line_without_thoughts(said: str, title: str) -> None:
    assert cleaned(said) == title


def test_first_words_of_nothing_are_no_title() -> None:
    assert first_words("  \n ") == "" and first_words("hi") == "hi"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("one two three four five six seven eight", "one two three four five six seven eight"),
        ("one two three four five six seven eight nine", "one two three four five six seven eight…"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("x" * 58 + " " + "y" * 10, "x" * 58 + "…"),
        (" a\n\tb\0c ", "a b c"),
        ("x" * 499 + "\n" + "y", "x" * 59 + "…"),
    ],
)
def test_first_words_are_few_and_short(text: str, title: str) -> None:
    assert first_words(text) == title


@pytest.mark.parametrize(("length", "title"), [(60, "x" * 60), (61, "x" * 59 + "…")])
def test_a_generated_title_is_as_short(length: int, title: str) -> None:
    assert cleaned("x" * length) == title
