"""What goes into a summary and when. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.context.compression import (
    chunks,
    has_turn,
    is_due,
    is_idle,
    is_still_full,
    kept_from,
    last_prompt_tokens,
    transcript,
)
from shared.context.marks import is_user
from shared.context.runtime import Goal, goal_of, with_runtime
from shared.context.tokens import row_tokens
from shared.messages import Entry
from tests.support.said import parse

U, A, T = Entry("user", "q"), Entry("assistant", "a"), Entry("tool", "r", data={"tool_call_id": "1"})
C = Entry("user", "/x", data={"command": True})
P = Entry("assistant", "ping", data={"proactive": True})


@pytest.mark.parametrize(("tokens", "window", "due"), [(120_000, 128_000, True), (120_000, 200_000, False)])
def test_U15_it_is_time_at_85_percent_of_the_window(tokens: int, window: int, due: bool) -> None:
    assert is_due(tokens, window) is due
    assert not is_due(tokens, None) and is_due(85, 100) and not is_due(84, 100)


def test_N36_a_conversation_is_idle_from_the_very_second_of_its_limit() -> None:
    now, minutes = 1_790_000_000_000, 15
    assert is_idle(now - minutes * 60_000, now, minutes)
    assert not is_idle(now - minutes * 60_000 + 1000, now, minutes)
    assert not is_idle(0, now, minutes) and not is_idle(now - minutes * 60_000, now, 0)


def test_the_last_count_of_tokens_is_the_newest_answers_or_nothing() -> None:
    counted = Entry("assistant", "a", data={"usage": {"prompt": 7}})
    assert last_prompt_tokens([counted, U]) == 7 and last_prompt_tokens([U, A]) == last_prompt_tokens([]) == 0
    assert last_prompt_tokens([counted, Entry("assistant", "b", data={"usage": {"prompt": None}})]) == 0


def test_U17_more_than_95_percent_is_still_full() -> None:
    assert is_still_full(96, 100) and not is_still_full(95, 100) and not is_still_full(96, None)


@pytest.mark.parametrize(
    ("rows", "start"),
    [
        ([], 0),
        ([A, A], 2),
        ([U, A] * 4, 0),
        ([U, A] * 6, 4),
        ([U, A] * 3 + [U, *[A, T] * 6, A], 6),  # a long turn stays whole
        ([U, A, U, A, P] + [U, A] * 4, 4),  # he answers the delivery
        ([U, A] * 6 + [C, C], 4),  # commands take no room
    ],
)
def test_the_end_that_stays_begins_with_a_turn(rows: list[Entry], start: int) -> None:
    assert kept_from(rows) == start


def test_an_end_that_is_too_large_is_shorter_and_the_last_turn_always_stays() -> None:
    big = [Entry("user", "q" * 3000), Entry("assistant", "a" * 3000)]
    assert kept_from(big * 6, tokens=5000) == 8
    whole = sum(map(row_tokens, big * 2))
    assert kept_from(big * 6, tokens=whole) == 8 and kept_from(big * 6, tokens=whole - 1) == 10
    assert kept_from(big * 6, tokens=10) == 10


def test_an_end_that_takes_exactly_the_tokens_that_are_left_stays() -> None:
    rows = [U, A, U, A, U, A]
    assert [kept_from(rows, tokens=row_tokens(U) * n) for n in (1, 2, 3, 4, 5, 6)] == [4, 4, 4, 2, 2, 0]


def test_rows_of_which_no_user_said_anything_are_no_turn() -> None:
    assert has_turn([A, U]) and not has_turn([A, C, P, T]) and not has_turn([])


@pytest.mark.parametrize(("turns", "start"), [(0, 6), (1, 4), (2, 2), (9, 0)])
def test_so_many_turns_stay_as_are_asked_for(turns: int, start: int) -> None:
    assert kept_from([U, A] * 3, turns=turns) == start


ROWS = st.lists(st.sampled_from([U, A, C, P, Entry("user", "x" * 500), Entry("assistant", "y" * 900)]), max_size=30)


@given(ROWS, st.integers(20, 2000))
def test_chunks_hold_every_row_once_and_are_cut_between_turns(rows: list[Entry], tokens: int) -> None:
    ends = [chunk.end for chunk in chunks(rows, tokens)]
    assert ends == sorted(set(ends)) and (not rows or ends[-1] == len(rows))
    assert all(end == len(rows) or is_user(rows[end]) for end in ends)
    for begin, end in zip([0, *ends], ends, strict=False):
        turns = sum(is_user(row) for row in rows[begin + 1 : end]) + 1
        assert turns == 1 or sum(map(row_tokens, rows[begin:end])) <= tokens


@given(st.text(max_size=60))
def test_no_row_of_a_transcript_passes_for_another(text: str) -> None:
    said = parse(transcript([Entry("user", f"x{text}"), Entry("assistant", "a")]))
    assert [str(line.sender) for line in said] == ["user", "assistant"]


def test_a_goal_is_read_in_every_form_it_was_written_in_and_garbage_is_none() -> None:
    goal = Goal("ship it")
    assert goal_of({"goal": goal.encode()}) == goal
    assert goal_of({"thread_goal": '{"objective": "old", "status": "blocked"}'}) == Goal("old", "blocked")
    assert goal_of({"goal": goal.encode(), "thread_goal": '{"objective": "old"}'}) == goal
    assert goal_of({"goal": '"{\\"objective\\": \\"in a string\\"}"'}) == Goal("in a string")
    for garbage in (
        "",
        "nonsense",
        "[]",
        '{"objective": 1}',
        '{"objective": " "}',
        '{"objective": "x", "status": "?"}',
    ):
        assert goal_of({"goal": garbage}) is None


def test_only_an_active_goal_is_told_and_no_line_of_it_is_a_heading() -> None:
    told = with_runtime("## Here", {"goal": Goal("a\n## b").encode(), "summary": "s\n## t"})
    assert [line for line in told.splitlines() if line.startswith("##")] == [
        "## Here",
        "## Earlier in this conversation",
        "## Goal of this conversation",
    ]
    assert with_runtime("## Here", {"goal": Goal("a", "completed").encode()}) == "## Here"
    assert with_runtime("", {}) == ""
    assert with_runtime("", {"summary": "s"}).startswith("## Earlier")  # no empty lines before it
