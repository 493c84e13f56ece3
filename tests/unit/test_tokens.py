"""How many tokens something is, about: never too few, and what providers count besides the words is in it."""

from __future__ import annotations

from typing import Any

import pytest

from shared.context.tokens import LEAST, PER_FILE, PER_ROW, RESERVE, estimate, replay_budget, row_tokens
from shared.messages import Entry


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abc", 1), ("abcd", 2), ("糖尿病", 3), ("ab糖", 2), ("abcd糖", 3)]
)
def test_three_letters_are_a_token_and_so_is_every_character_of_another_script(text: str, tokens: int) -> None:
    assert estimate(text) == tokens


def tokens_of(text: str = "", role: str = "assistant", **data: Any) -> int:
    return row_tokens(Entry(role, text, data=data)) - PER_ROW


def test_a_row_is_its_text_and_what_every_row_takes() -> None:
    assert row_tokens(Entry("user", "abcdef")) == PER_ROW + 2 and PER_ROW == 4


def test_calls_names_and_thoughts_of_a_row_count_too() -> None:
    assert tokens_of(name="abcdef") == 2
    assert tokens_of(reasoning="abcdef") == 2
    assert tokens_of("abc", tool_calls=[{"id": "x"}]) == 1 + estimate('[{"id":"x"}]')
    assert tokens_of(thinking=[{"t": "abc"}], reasoning="not twice") == estimate('[{"t":"abc"}]')


def test_blocks_count_instead_of_the_text_and_a_file_as_much_as_providers_say() -> None:
    blocks = [{"type": "text", "text": "abc"}, {"type": "image"}]
    assert tokens_of("the text is not counted", role="user", blocks=blocks) == 1 + PER_FILE
    assert PER_FILE == 1500


def test_history_may_take_what_the_answer_and_the_reserve_leave() -> None:
    assert RESERVE == 1024 and LEAST == 128
    assert replay_budget(8000, 1000) == 8000 - 1000 - RESERVE
    assert replay_budget(1000 + RESERVE + LEAST, 1000) == LEAST


def test_where_nothing_is_left_history_may_take_half_of_the_window() -> None:
    assert replay_budget(1000 + RESERVE + LEAST - 1, 1000) == (1000 + RESERVE + LEAST - 1) // 2
    assert replay_budget(100, 1000) == LEAST
