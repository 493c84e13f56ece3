"""Buttons as plain data: which of a question's choices a platform's message gets, and what a pressed one may say."""

from __future__ import annotations

import pytest

from shared.agent.events import Ask, Call
from shared.choices import DATA_BYTES, Choice, ask_id, is_ask_id, pressed, turn_of
from shared.messages import Media, Reply
from shared.part_record import PartRecord, decode_part, encode_part
from shared.platforms import PLATFORMS
from shared.platforms.facts import ButtonLimits, Limit
from tests.unit.test_wire import PART
from workers.delivery.buttons import buttons_of
from workers.delivery.parts import in_parts
from workers.turn.question import question_reply

TURN = "turn_01a1ee7f5c8cb846d634ecf26b6740c8"
LIMITS = ButtonLimits(3, Limit(8), Limit(20))
WITH_BUTTONS = [name for name, facts in PLATFORMS.items() if facts.buttons is not None]


def choices(*labels: str) -> list[Choice]:
    return [Choice(label, f"/answer {ask_id(TURN, 0)} {n}") for n, label in enumerate(labels, 1)]


def labels(*given: str, text: str = "Well?") -> list[str]:
    return [choice.label for choice in buttons_of(choices(*given), LIMITS, text)]


def test_choices_that_fit_become_buttons() -> None:
    assert labels("red", "blue", "green") == ["red", "blue", "green"]


def test_a_label_stands_in_one_line_and_is_cut_where_it_is_too_long() -> None:
    assert labels("the  red\none", "blue") == ["the red…", "blue"]
    assert labels("a\0b") == ["a\N{REPLACEMENT CHARACTER}b"]


@pytest.mark.parametrize("given", [("a", "b", "c", "d"), ("the red one", "the red two"), (" ", "b"), ("same", "same")])
def test_too_many_equal_or_empty_choices_get_no_buttons_at_all(given: tuple[str, ...]) -> None:
    assert labels(*given) == []


def test_a_text_that_is_too_long_beside_buttons_gets_none() -> None:
    assert labels("yes", text="x" * 20) == ["yes"] and labels("yes", text="x" * 21) == []


def test_without_buttons_a_question_is_its_text() -> None:
    question = question_reply([Ask("q", "Well?", ("red", "blue"))], TURN)
    assert len(question.choices) == 2
    for name, facts in PLATFORMS.items():
        [part] = in_parts(name, [question])
        assert part.text == "Well?\n(red / blue)"
        assert bool(part.choices) == (facts.buttons is not None)


@pytest.mark.parametrize("name", WITH_BUTTONS)
def test_the_buttons_of_a_long_question_stand_below_its_last_text(name: str) -> None:
    asked = question_reply([Ask("q", "word " * 3000 + "end", ("red", "blue"))], TURN)
    *before, last = in_parts(name, [Reply(asked.text, choices=asked.choices)])
    assert before and not any(part.choices for part in before)
    assert [choice.label for choice in last.choices] in (["red", "blue"], [])
    *_, text, file = in_parts(name, [Reply("Well?", (Media("https://x.example/a.png"),), choices=asked.choices)])
    assert len(text.choices) == 2 and file.choices == ()


def test_each_of_several_questions_says_which_one_its_buttons_answer_and_how_to_type_it() -> None:
    call = Call("c", "shell", "{}")
    asks = [Ask("a", "May I?", ("yes", "no"), call=call), Ask("b", "Which?", ("red",)), Ask("c", "Why?")]
    reply = question_reply(asks, TURN)
    assert [choice.label for choice in reply.choices] == ["1: Approve", "1: Deny", "2: red"]
    assert [choice.command for choice in reply.choices] == [
        f"/approve {ask_id(TURN, 0)}",
        f"/deny {ask_id(TURN, 0)}",
        f"/answer {ask_id(TURN, 1)} 1",
    ]
    for how in ("(/approve 1 or /deny 1)", "(/answer 2 and one of: red)", "(/answer 3 and your words)"):
        assert how in reply.text


def test_a_buttons_data_is_short_and_comes_back_as_its_command() -> None:
    for command in (f"/approve {ask_id(TURN, 0)}", f"/deny {ask_id(TURN, 999)}", f"/answer {ask_id(TURN, 999)} 999"):
        assert pressed(command) == command and len(command.encode()) <= DATA_BYTES
    assert turn_of(ask_id(TURN, 7)) == TURN and is_ask_id(ask_id(TURN, 7))


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        "",
        "yes",
        "/new",
        "/approve",
        "/approve 1",
        f"/approve {ask_id(TURN, 0)}\n",
        f"/approve {ask_id(TURN, 0)} /new",
        f"/approve {ask_id(TURN, 0).upper()}",
        f"/answer {ask_id(TURN, 0)}",
        f"/answer {ask_id(TURN, 0)} 0",
        f"/answer {ask_id(TURN, 0)} ٣",
        f"/answer {ask_id(TURN, 0)} red",
    ],
)
def test_data_of_any_other_form_is_no_buttons(data: object) -> None:
    assert pressed(data) is None


def test_the_record_of_a_part_keeps_its_buttons_and_one_without_any_is_as_it_was() -> None:
    record = PartRecord(PART.source, ("e",), 1, 1, "Well?", choices=tuple(choices("red", "blue")))
    assert decode_part(encode_part(record)) == record
    assert "choices" not in encode_part(PART)
