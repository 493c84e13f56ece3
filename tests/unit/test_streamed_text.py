"""What the reader of a stream has seen is never taken back, and in the end they have the answer as it was committed."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from producers.api.chat.streamed import ANEW, StreamedText
from shared.live_text import LiveRecord, SaidText, SaidThought, TokensUsed, decode_live, encode_live
from tests.support.anything import JSON


def shown(stream: StreamedText, *pieces: tuple[int, int, int, str]) -> str:
    return "".join(stream.take(attempt, SaidText(row, at, text)) for attempt, row, at, text in pieces)


def test_pieces_are_shown_as_they_come_and_the_end_adds_what_is_missing() -> None:
    stream = StreamedText()
    assert shown(stream, (1, 0, 0, "one "), (1, 0, 4, "two")) == "one two"
    assert stream.finish("one two three") == " three" and stream.finish("one two three") == ""


def test_after_a_missed_piece_nothing_is_shown_until_the_end() -> None:
    stream = StreamedText()
    assert shown(stream, (1, 0, 0, "one "), (1, 0, 8, "three"), (1, 0, 13, " four")) == "one "
    assert stream.finish("one two three four") == "two three four"


def test_another_attempt_that_says_the_same_goes_on_where_the_first_was_cut() -> None:
    stream = StreamedText()
    assert shown(stream, (1, 0, 0, "one two"), (2, 0, 0, "one "), (2, 0, 4, "two three")) == "one two three"
    assert stream.finish("one two three") == ""


def test_another_attempt_that_says_something_else_is_shown_whole_at_the_end() -> None:
    stream = StreamedText()
    assert shown(stream, (1, 0, 0, "one two"), (2, 0, 0, "uno "), (2, 0, 4, "due")) == "one two"
    assert stream.finish("uno due") == f"{ANEW}uno due"


def test_each_row_of_a_turn_begins_a_paragraph_and_the_answer_is_not_repeated() -> None:
    stream = StreamedText()
    assert shown(stream, (1, 0, 0, "Let me look."), (1, 1, 0, "It is 42.")) == f"Let me look.{ANEW}It is 42."
    assert stream.finish("It is 42.") == ""


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 6), st.text("ab", max_size=4))),
    st.text("ab"),
)
def test_whatever_pieces_come_the_reader_has_the_answer_at_the_end(
    pieces: list[tuple[int, int, int, str]], answer: str
) -> None:
    stream = StreamedText()
    seen = shown(stream, *pieces)
    assert (seen + stream.finish(answer)).endswith(answer)


def test_a_record_comes_out_of_redis_as_it_went_in() -> None:
    said = (SaidText(0, 0, "Hel"), SaidThought("hm"), SaidText(0, 3, "lo"))
    for record in (LiveRecord(1, said), LiveRecord(2, (), TokensUsed(3, 4), is_last=True)):
        assert decode_live(encode_live(record)) == record


@given(JSON)
def test_garbage_in_redis_is_no_record_and_no_error(found: object) -> None:
    whole = {"attempt": 1, "said": [{"row": 0, "at": 0, "text": "x"}], "usage": None, "is_last": False}
    for garbage in (found, {**whole, "said": found}, {**whole, "attempt": found}, {**whole, "usage": found}):
        try:
            data = orjson.dumps(garbage)
        except TypeError:
            continue
        decode_live(data)
    assert decode_live(b"{") is None
