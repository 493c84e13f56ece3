"""How what people say is read as the answer to an open question, word by word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from keyturn import Ask, Done, Reply, Turn
from shared.door import accept
from tests.flow.test_asking import last_told, questions, say
from tests.store.books import ask, write
from tests.support.pipe import Rig, an_inbound, key_of
from workers.agents.functions import GeneratorAgent
from workers.turn.asking import LISTED_CHARACTERS, NO_SUCH_ANSWER, NOT_HERE, NOT_YOURS, SETTLED, UNKNOWN

NO_SUCH = NO_SUCH_ANSWER.format(choices="red / blue")
OWN_WORDS = "Please answer in your own words: Which colour?"
WHICH = "Which one? 1. Which colour?"


async def chooses(turn: Turn) -> Any:
    """Asks for one of two colours when it is told to, and says how the answer was read."""
    if turn.answers:
        said = turn.answers["q"]
        yield Done((Reply(f"{said.choice}: {said.text}"),))
    elif turn.mail[0].text == "ask me":
        yield Ask("q", "Which colour?", ("red", "blue"))
    else:
        yield Done((Reply("fine"),))


@pytest.mark.parametrize(
    ("said", "told", "state"),
    [
        ("/answer 2", "blue: blue", "answered"),
        ("/answer 02", "blue: blue", "answered"),
        ("/answer 1", "red: red", "answered"),
        ("/answer 1 blue", "blue: blue", "answered"),
        ("/answer 1 2", "blue: blue", "answered"),
        ("/answer Blue!", "blue: blue", "answered"),
        ("blue", "blue: blue", "answered"),
        ("/deny", "no: /deny", "answered"),
        ("/answer 0", NO_SUCH, "open"),
        ("/answer 3", NO_SUCH, "open"),
        ("/answer 0002", NO_SUCH, "open"),
        ("/answer green", NO_SUCH, "open"),
        ("/answer no", NO_SUCH, "open"),
        ("/approve", OWN_WORDS, "open"),
        ("/answer 2 blue", WHICH, "open"),
        ("/answer 00001 blue", WHICH, "open"),
        ("/approve 7", WHICH, "open"),
        ("2", "fine", "open"),
        ("yes", "fine", "open"),
        ("green", "fine", "open"),
        ("/answer {id} 2", "blue: blue", "answered"),
        ("/deny {id}", "no: /deny", "answered"),
        ("/answer {id} 3", NO_SUCH, "open"),
        ("/answer {id} red", NO_SUCH, "open"),  # no button gives words
        ("/approve {id}", OWN_WORDS, "open"),
    ],
)
async def test_a_choice_is_read_from_its_words_its_number_or_its_button_and_from_nothing_else(
    rig: Rig, said: str, told: str, state: str
) -> None:
    rig.agent = GeneratorAgent(chooses)
    await say(rig, "ask me")
    [row] = await ask(rig.pipe.store, "SELECT id FROM asks")
    assert await say(rig, said.format(id=row["id"])) == told
    assert await questions(rig) == [state]
    if state == "answered" and "{id}" in said:
        assert row["id"] not in "".join(await rig.transcript())  # nobody typed it


async def test_whoever_answers_a_question_by_its_button_is_told_why_they_cannot(rig: Rig) -> None:
    rig.agent = GeneratorAgent(chooses)
    await say(rig, "ask me")
    [row] = await ask(rig.pipe.store, "SELECT id FROM asks")
    pressed = f"/answer {row['id']} 1"
    assert await say(rig, pressed, chat="other") == NOT_HERE
    assert await say(rig, pressed, chat="other", user="eve") == NOT_YOURS
    assert await say(rig, pressed, user="eve") == NOT_YOURS
    unknown = row["id"].replace(row["id"][4:12], "0" * 8)
    assert await say(rig, f"/answer {unknown} 1") == UNKNOWN
    assert await questions(rig) == ["open"]
    assert await say(rig, pressed) == "red: red"
    assert await say(rig, pressed) == SETTLED["answered"]
    assert await say(rig, "/answer red") == SETTLED["answered"]


async def test_of_two_open_questions_plain_words_answer_none_and_a_number_means_the_last_that_were_asked(
    rig: Rig,
) -> None:
    rig.agent = GeneratorAgent(chooses)
    for _ in range(2):
        await say(rig, "ask me")
    assert await say(rig, "red") == "fine"
    assert await say(rig, "/answer red") == WHICH
    assert await questions(rig) == ["open", "open"]
    assert await say(rig, "/answer 1 red") == "red: red"
    assert await questions(rig) == ["open", "answered"]
    assert await say(rig, "blue") == "blue: blue"  # one is left


@pytest.mark.parametrize(("more", "whole"), [(0, True), (1, False)])
async def test_a_long_question_is_listed_by_its_first_line(rig: Rig, more: int, whole: bool) -> None:
    text = "x" * (LISTED_CHARACTERS - 5) + "\nmore" + "." * more

    async def asks(turn: Turn) -> Any:
        yield Ask("q", text, ("red", "blue"))

    rig.agent = GeneratorAgent(asks)
    await say(rig, "ask me")
    listed = text if whole else "x" * (LISTED_CHARACTERS - 5) + "…"
    assert await say(rig, "/answer 9 red") == f"Which one? 1. {listed}"


@pytest.mark.parametrize(
    ("choices", "left_ms", "told"),
    [
        (("red", "blue"), 1, "red"),
        (("red", "blue"), 0, SETTLED["expired"]),
        ((), 1, "red"),
        ((), 0, "fine"),
    ],
)
@pytest.mark.parametrize("said", ["red", "/answer red"])
async def test_an_answer_counts_up_to_the_last_moment_of_its_question_by_when_it_came(
    rig: Rig, choices: tuple[str, ...], left_ms: int, told: str, said: str
) -> None:
    """Plain words that come too late for a question in any words are a message as any other."""

    async def asks(turn: Turn) -> Any:
        if turn.answers:
            yield Done((Reply(turn.answers["q"].text.removeprefix("/answer ")),))
        elif turn.mail[0].text == "ask me":
            yield Ask("q", "Which colour?", choices)
        else:
            yield Done((Reply("fine"),))

    rig.agent = GeneratorAgent(asks)
    await say(rig, "ask me")
    [row] = await ask(rig.pipe.store, "SELECT created_at FROM asks")
    came = row["created_at"] + 1000
    await write(rig.pipe.store, "UPDATE asks SET expires_at = :at", at=came + left_ms)
    await accept(rig.pipe, replace(an_inbound(said), received_at=came))
    await rig.run_turns()
    is_late_command = left_ms == 0 and said.startswith("/")
    assert await last_told(rig) == (SETTLED["expired"] if is_late_command else told)
    assert await questions(rig) == ["answered" if left_ms else "open"]


async def test_several_questions_of_a_turn_say_how_each_is_answered(rig: Rig) -> None:
    async def asks(turn: Turn) -> Any:
        yield Ask("a", "Which colour?", ("red", "blue"))
        yield Ask("b", "Which name?")

    rig.agent = GeneratorAgent(asks)
    assert await say(rig, "ask me") == (
        "1. Which colour?\n(/answer 1 and one of: red / blue)\n2. Which name?\n(/answer 2 and your words)"
    )
    assert await say(rig, "/answer 2 the boat") == "Noted. Still open: 1. Which colour?"


async def test_what_was_asked_before_a_branch_stays_open_when_the_copy_ends(rig: Rig) -> None:
    """The same chat, and two conversations: only one of them is over."""
    rig.agent = GeneratorAgent(chooses)
    await say(rig, "ask me")
    await say(rig, "/title before")
    await say(rig, "/branch")
    await say(rig, "ask me")
    await say(rig, "/new")
    assert await questions(rig) == ["open", "closed"]
    await say(rig, "/resume before")
    assert await say(rig, "red") == "red: red"
    assert await questions(rig) == ["answered", "closed"]
    session, _ = await rig.pipe.store.transcript.load(key_of(), "")
    assert "asking" not in session.facts
