"""What an agent outside of the process says: text as it comes, events one by one, and the lines in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest

from keyturn import AgentFault
from shared.agent.events import Ask, Delta, Done, Event, Restarted, Row
from shared.agent.wire import encode_event
from shared.messages import Entry, Reply
from workers.agents.http import events_in
from workers.agents.spoken import SpokenEvents, SpokenText, lines

ANSWER, TOOL = Row(Entry("assistant", "an answer")), Row(Entry("tool", "found"))


def said(*chunks: bytes) -> tuple[list[str], list[Event]]:
    """The text that was told chunk by chunk, and the events behind it."""
    text = SpokenText()
    deltas = [event.text for chunk in chunks for event in text.take(chunk) if isinstance(event, Delta)]
    return deltas, text.end()


@pytest.mark.parametrize(
    ("chunks", "told", "answer"),
    [
        ([b"hello ", b"there"], ["hello", " there"], "hello there"),
        ([b" \n", b"\thello", b" \n\n "], ["hello"], "hello"),  # blank space around it
        ([b"a", b"  ", b"\n", b"b"], ["a", "  \nb"], "a  \nb"),
        (["é".encode()[:1], "é".encode()[1:], b"!"], ["é", "!"], "é!"),
        ([b"a\xff", b"b"], ["a\N{REPLACEMENT CHARACTER}", "b"], "a\N{REPLACEMENT CHARACTER}b"),
    ],
)
def test_a_text_is_told_as_it_comes_without_the_blank_space_around_it(
    chunks: list[bytes], told: list[str], answer: str
) -> None:
    assert said(*chunks) == (told, [Row(Entry("assistant", answer)), Done((Reply(answer),))])


def test_of_a_text_that_ends_within_a_character_the_rest_is_the_answer() -> None:
    assert said(b"a", "é".encode()[:1]) == (["a"], [Row(Entry("assistant", "a")), Done((Reply("a"),))])


@pytest.mark.parametrize("chunks", [[], [b""], [b" ", b"\n"]])
def test_a_text_without_words_says_nothing(chunks: list[bytes]) -> None:
    assert said(*chunks) == ([], [Done()])


def spoken(events: Iterable[Event]) -> list[Event]:
    """The events that are added behind those that were told."""
    told = SpokenEvents()
    assert [told.take(encode_event(event)) for event in events] == [*events]
    return told.end()


@pytest.mark.parametrize(
    ("events", "added"),
    [
        ([Delta("a "), Delta("b ")], [Row(Entry("assistant", "a b")), Done((Reply("a b"),))]),
        ([Delta("a"), Restarted(), Delta("b")], [Row(Entry("assistant", "b")), Done((Reply("b"),))]),
        ([Delta("an answer"), ANSWER], [Done((Reply("an answer"),))]),
        ([ANSWER, TOOL], [Done((Reply("an answer"),))]),  # the last row of the assistant
        ([ANSWER, Delta("and "), Delta("more")], [Row(Entry("assistant", "and more")), Done((Reply("and more"),))]),
        ([ANSWER, Delta("  ")], [Done((Reply("an answer"),))]),
        ([TOOL], [Done()]),
        ([], [Done()]),
        ([Delta("a"), Done((Reply("b"),))], []),
        ([Ask("q1", "May I?")], []),
    ],
)
def test_what_an_agent_leaves_out_at_its_end_is_added(events: list[Event], added: list[Event]) -> None:
    assert spoken(events) == added


def test_an_agent_has_ended_with_done_or_a_question_and_not_before() -> None:
    for last in (Done(), Ask("q1", "May I?")):
        told = SpokenEvents()
        told.take(encode_event(ANSWER))
        assert not told.has_ended
        told.take(encode_event(last))
        assert told.has_ended


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b"5", b'{"shout": "a"}', b'{"delta": 5}'])
def test_what_is_no_event_is_the_agents_fault(record: bytes) -> None:
    with pytest.raises(AgentFault, match="no event"):
        SpokenEvents().take(record)


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b'{"text": " hello "}', [Row(Entry("assistant", "hello")), Done((Reply("hello"),))]),
        (b'{"text": " "}', [Done()]),
        (encode_event(Done((Reply("a"),))), [Done((Reply("a"),))]),
        (encode_event(Delta("a")), [Delta("a"), Row(Entry("assistant", "a")), Done((Reply("a"),))]),
        (b'{"events": [' + encode_event(ANSWER) + b"]}", [ANSWER, Done((Reply("an answer"),))]),
        (b'{"events": []}', [Done()]),
    ],
)
def test_an_answer_in_json_is_a_text_an_event_or_several(body: bytes, events: list[Event]) -> None:
    assert events_in(body) == events


@pytest.mark.parametrize(
    "body", [b"", b"hello", b'"hello"', b"[]", b'{"text": 5}', b'{"events": 5}', b'{"events": [5]}']
)
def test_an_answer_in_json_that_says_nothing_we_know_is_the_agents_fault(body: bytes) -> None:
    with pytest.raises(AgentFault):
        events_in(body)


@pytest.mark.parametrize(
    ("chunks", "found"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a\r\n", b"\r\n\n", b" b \nc"], [b"a", b"b", b"c"]),  # the last one need not have an end
        ([b"a", b"b", b"c\nd", b"e\n"], [b"abc", b"de"]),
        ([b"a\n", b"  "], [b"a"]),
        ([], []),
    ],
)
async def test_lines_are_those_of_all_chunks_together_and_empty_ones_are_left_out(
    chunks: list[bytes], found: list[bytes]
) -> None:
    async def come() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    assert [line async for line in lines(come())] == found
