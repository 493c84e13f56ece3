"""An answer in the chat-completions format is put together from whatever a server sends, and a prompt is written in it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from shared.agent.events import Call
from shared.context.marks import BLOCKS, REASONING, THINKING, TOOL_CALL_ID, TOOL_CALLS
from shared.messages import Entry
from workers.agents.model.contract import ModelRefused, Piece, Prompt, ToolSpec
from workers.agents.model.prices import Tokens, price
from workers.agents.model.usage import begun, estimated, usage_of
from workers.agents.openai_format.deltas import DONE, Assembled
from workers.agents.openai_format.events import EVENT_BYTES, EventData, TooMuch
from workers.agents.openai_format.form import ServerForm, body, thinking_marks

ACME = ServerForm("acme")
THINKER = ServerForm("thinker", always_field="reasoning_content", limit_field="max_tokens")


def delta(said: Any, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, **choice}]}


def taken(*chunks: Any) -> Assembled:
    answer = Assembled()
    answer.take(list(chunks))
    return answer


# -- answers


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"choices": None},
        {"choices": []},
        {"choices": ["words"]},
        {"choices": [{"index": 1, "delta": {"content": "another answer"}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": "words"}]},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"index": 0, "delta": {"content": ["words"]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": ["words"]}}]},
        {"choices": [{"index": 0, "delta": {"content": "", "reasoning": 7}, "finish_reason": ""}]},
    ],
)
def test_a_chunk_that_says_nothing_adds_nothing(chunk: Any) -> None:
    answer = Assembled()
    assert answer.take([chunk]) == Piece()
    assert (answer.text, answer.reasoning, answer.calls, answer.finish) == ("", "", (), None)


def test_a_choice_without_a_number_is_the_first() -> None:
    assert taken({"choices": [{"delta": {"content": "hi"}}]}).text == "hi"


def test_a_refusal_is_what_the_model_said() -> None:
    assert taken(delta({"content": None, "refusal": "I will not."})).text == "I will not."


def test_an_answer_that_was_not_streamed_stands_in_its_message() -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "all of it"}, "finish_reason": "stop"}]}
    answer = taken(whole, DONE)
    assert (answer.text, answer.finish) == ("all of it", "stop")


def test_the_end_of_a_stream_ends_an_answer_and_hides_no_other_reason() -> None:
    assert taken(delta({"content": "hi"}), DONE).finish == "stop"
    assert taken(delta({"content": "hi"}, finish_reason="length"), DONE).finish == "length"
    assert taken(delta({"content": "hi"})).finish is None


def test_thoughts_that_come_in_two_fields_are_taken_from_the_first() -> None:
    answer = taken(delta({"reasoning": "hm", "reasoning_content": "hm"}), delta({"reasoning_content": "m"}))
    assert (answer.reasoning, answer.reasoning_field) == ("hmm", "reasoning_content")
    assert taken(delta({"reasoning": "hm"}), delta({"reasoning_content": "other"})).reasoning == "hm"
    assert taken(delta({"content": "hi"})).reasoning_field == ""


def test_a_piece_says_whether_it_is_the_last() -> None:
    answer = Assembled()
    assert answer.take([delta({"content": "a"})]) == Piece("a", "", is_last=False)
    assert answer.take([delta({"content": "b", "reasoning": "t"}, finish_reason="stop")]) == Piece(
        "b", "t", is_last=True
    )


def call(said: Any) -> dict[str, Any]:
    return delta({"tool_calls": [said]})


def test_a_call_without_id_number_or_arguments_can_be_answered_all_the_same() -> None:
    two = delta({"tool_calls": [{"function": {"name": "a"}}, {"function": {"name": "b"}}]})
    assert taken(two).calls == (Call("call_0", "a", "{}"), Call("call_1", "b", "{}"))


def test_calls_are_in_the_order_of_their_numbers_whichever_came_first() -> None:
    later = call({"index": 1, "id": "y", "function": {"name": "b", "arguments": "{}"}})
    earlier = call({"index": 0, "id": "x", "function": {"name": "a", "arguments": "{}"}})
    assert [one.id for one in taken(later, earlier).calls] == ["x", "y"]


def test_a_name_may_be_repeated_with_every_piece_and_may_come_in_pieces() -> None:
    begun = {"index": 0, "id": "x", "function": {"name": "look", "arguments": '{"a"'}}
    again = {"index": 0, "id": "", "function": {"name": "look", "arguments": ":1}"}}
    assert taken(call(begun), call(again)).calls == (Call("x", "look", '{"a":1}'),)
    other = {"index": 0, "function": {"name": "_up", "arguments": ":1}"}}
    assert taken(call(begun), call(other)).calls == (Call("x", "look_up", '{"a":1}'),)


@pytest.mark.parametrize("odd", [{"function": "words"}, {"id": 7, "function": {"name": 7, "arguments": {}}}])
def test_fields_of_a_call_that_are_no_text_are_left_out(odd: dict[str, Any]) -> None:
    known = {"index": 0, "id": "x", "function": {"name": "look", "arguments": "{}"}}
    assert taken(call(known), call({"index": 0, **odd})).calls == (Call("x", "look", "{}"),)


def test_what_a_model_wrote_into_calls_counts_as_written() -> None:
    assert taken(call({"index": 0, "function": {"name": "look", "arguments": "{1}"}})).arguments == "look{1}"


def used(asked: Any, said: Any, cached: Any = None) -> dict[str, Any]:
    details = {} if cached is None else {"prompt_tokens_details": cached}
    return {"usage": {"prompt_tokens": asked, "completion_tokens": said, **details}}


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (used(3, 2), Tokens(3, 2, 0)),
        (used(3, 2, {"cached_tokens": 1}), Tokens(3, 2, 1)),
        (used(3, 2, {"cached_tokens": "1"}), Tokens(3, 2, 0)),
        (used(3, 2, "words"), Tokens(3, 2, 0)),
        (used(1, 0), Tokens(1, 0, 0)),
        (used(0, 0), None),
        (used("3", 2), None),
        (used(3, None), None),
        ({"usage": None}, None),
        ({"usage": 7}, None),
    ],
)
def test_tokens_are_counted_as_the_server_says_and_only_if_it_says_both(chunk: Any, expected: Tokens | None) -> None:
    assert taken(chunk).tokens == expected


def test_a_later_count_that_is_none_does_not_hide_an_earlier_one() -> None:
    assert taken(used(3, 2), used(0, 0)).tokens == Tokens(3, 2, 0)
    assert taken(used(3, 2), used(4, 2)).tokens == Tokens(4, 2, 0)


# -- events


def test_only_data_is_read_from_events_however_their_lines_end() -> None:
    data = EventData()
    assert data.fed(b": hello\nevent: x\ndata:1\r\ndata:  2 \r\rdata") == [b"1", b"2"]
    assert data.fed(b": 3") == []
    assert data.left() == [b"3"]
    assert data.left() == []


def test_a_line_as_long_as_the_limit_is_read_and_one_without_end_is_not() -> None:
    longest = b"data:" + b"x" * (EVENT_BYTES - 5)
    data = EventData()
    assert data.fed(longest) == []
    assert data.left() == [longest[5:]]
    with pytest.raises(TooMuch):
        EventData().fed(longest + b"x")
    with pytest.raises(TooMuch):
        EventData().fed(b"\n" + longest + b"x")


# -- requests


def asked(*rows: Entry, form: ServerForm = ACME, most: int | None = None, **prompt: Any) -> dict[str, Any]:
    sent: dict[str, Any] = orjson.loads(body("m", Prompt(rows, **prompt), form, most))
    return sent


HELLO = Entry("user", "hello")


def test_a_request_has_model_stream_and_messages_and_nothing_that_was_not_asked_for() -> None:
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    assert asked(HELLO) == {"model": "m", **stream, "messages": [{"role": "user", "content": "hello"}]}
    told = asked(HELLO, instructions="Be kind.")["messages"]
    assert told[0] == {"role": "system", "content": "Be kind."} and len(told) == 2


def test_the_length_of_an_answer_is_limited_in_the_field_that_the_server_knows() -> None:
    assert asked(HELLO, most=5)["max_completion_tokens"] == 5
    sent = asked(HELLO, form=THINKER, most=5)
    assert sent["max_tokens"] == 5 and "max_completion_tokens" not in sent


def test_a_tool_is_described_as_a_function() -> None:
    [described] = asked(HELLO, tools=(ToolSpec("look", "Looks.", {"type": "object"}),))["tools"]
    function = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    assert described == {"type": "function", "function": function}


@pytest.mark.parametrize("rows", [(), (Entry("assistant", "hi"),), (Entry("assistant", ""),)])
def test_where_nobody_asks_nothing_is_sent(rows: tuple[Entry, ...]) -> None:
    with pytest.raises(ModelRefused):
        body("m", Prompt(rows), ACME, None)


def test_an_answer_without_text_calls_and_thoughts_is_left_out() -> None:
    assert [message["role"] for message in asked(Entry("assistant", ""), HELLO)["messages"]] == ["user"]


CALLED = Entry("assistant", "", data={TOOL_CALLS: [{"id": "x", "name": "look", "arguments": {"at": 1}}]})


def test_calls_and_their_results_are_sent_in_the_servers_form() -> None:
    first, result, _ = asked(CALLED, Entry("tool", "seen", data={TOOL_CALL_ID: "x"}), HELLO)["messages"]
    function = {"name": "look", "arguments": '{"at":1}'}
    assert first == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "x", "type": "function", "function": function}],
    }
    assert result == {"role": "tool", "tool_call_id": "x", "content": "seen"}


def test_arguments_that_are_missing_are_an_empty_object() -> None:
    bare = Entry("assistant", "", data={TOOL_CALLS: [{"id": "x", "name": "look"}]})
    [sent, _] = asked(bare, HELLO)["messages"]
    assert sent["tool_calls"][0]["function"]["arguments"] == "{}"


def test_thoughts_go_back_to_their_own_provider_in_their_own_field() -> None:
    def block(**about: Any) -> dict[str, Any]:
        return {"type": "thinking", "thinking": "hm", "id": "reasoning", "provider": "acme", **about}

    blocks = [block(), block(thinking="m"), block(provider="other"), block(id=7), block(thinking=7), "words"]
    [sent, _] = asked(Entry("assistant", "42", data={THINKING: blocks, REASONING: "unused"}), HELLO)["messages"]
    assert sent == {"role": "assistant", "content": "42", "reasoning": "hmm"}


def test_a_server_that_always_wants_thoughts_gets_them_from_wherever_they_came() -> None:
    def sent(**data: Any) -> dict[str, Any]:
        message: dict[str, Any] = asked(Entry("assistant", "42", data=data), HELLO, form=THINKER)["messages"][0]
        return message

    assert sent(**{REASONING: "hm"})["reasoning_content"] == "hm"
    assert sent(**{THINKING: [{"thinking": "a"}, {"thinking": None}, {"thinking": "b"}]})["reasoning_content"] == "ab"
    assert "reasoning_content" not in sent()
    assert asked(CALLED, HELLO, form=THINKER)["messages"][0]["reasoning_content"] == ""
    assert "reasoning_content" not in asked(CALLED, HELLO)["messages"][0]


def test_thoughts_are_kept_with_their_field_only_where_they_came_in_one() -> None:
    kept = {THINKING: [{"type": "thinking", "thinking": "hm", "id": "reasoning", "provider": "acme"}]}
    assert thinking_marks("reasoning", "hm", ACME) == kept
    assert thinking_marks("", "hm", ACME) == thinking_marks("reasoning", "", ACME) == {}


DATA = "data:image/png;base64,aGk="


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "text", "text": "hi"}, {"type": "text", "text": "hi"}),
        ({"type": "image_url", "image_url": DATA}, {"url": DATA}),
        (
            {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}},
            {"url": "https://a/b.png", "detail": "low"},
        ),
        ({"type": "image_url", "image_url": {"url": "http://a/b.png", "detail": 7}}, {"url": "http://a/b.png"}),
        ({"type": "image", "source": {"media_type": "image/png", "data": "aGk="}}, {"url": DATA}),
        ({"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}, {"url": "https://a/b.png"}),
    ],
)
def test_a_block_that_a_request_can_carry_is_carried(block: Any, expected: dict[str, Any]) -> None:
    [message] = asked(Entry("user", "instead", data={BLOCKS: [block]}))["messages"]
    shown = expected if "text" in expected else {"type": "image_url", "image_url": expected}
    assert message == {"role": "user", "content": [shown]}


@pytest.mark.parametrize(
    "block",
    [
        "words",
        {"type": "audio"},
        {"image_url": {"url": "file:///etc/passwd"}},
        {"image_url": "data:text/html;base64,aGk="},
        {"image_url": f"{DATA}<script>"},
        {"source": {"media_type": "image/png"}},
    ],
)
def test_a_block_that_no_request_can_carry_leaves_the_rows_text(block: Any) -> None:
    [message] = asked(Entry("user", "instead", data={BLOCKS: [block]}))["messages"]
    assert message["content"] == "instead"


def test_the_text_blocks_of_an_answer_are_its_text() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "other"}, {"type": "text", "text": "b"}]
    [message, _] = asked(Entry("assistant", "unused", data={BLOCKS: blocks}), HELLO)["messages"]
    assert message["content"] == "ab"


# -- what it cost


def test_counted_usage_says_what_was_counted_and_what_it_cost_if_that_is_known() -> None:
    counted = usage_of("m", Tokens(3, 2, 1, 4), None)
    tokens = {"input": 3, "output": 2, "cache_read": 1, "cache_write": 4, "total": 5, "prompt": 3}
    assert counted == {"model": "m", "requests": 1, **tokens, "cost": "unknown"}


def test_a_model_of_a_public_price_list_has_a_price_for_each_kind_of_token() -> None:
    url = "https://api.openai.com/v1"
    plain, cached = price("gpt-4o", Tokens(1000, 0), url), price("gpt-4o", Tokens(1000, 0, 1000), url)
    assert plain is not None and cached is not None and 0 < cached < plain
    more = price("gpt-4o", Tokens(1000, 1000), url)
    assert more is not None and more > plain
    assert usage_of("gpt-4o", Tokens(1000, 0), plain)["cost_usd"] == f"{plain:f}"
    assert price("nobody-knows", Tokens(1, 1), "https://nobody.example/v1") is None


def test_usage_that_nobody_counted_is_guessed_from_all_that_was_sent_and_said() -> None:
    def guess(said: str = "", **prompt: Any) -> tuple[int, int]:
        found = estimated("m", Prompt(**{"rows": [], **prompt}), said)
        assert found["estimated"] is True and found["total"] == found["input"] + found["output"]
        return found["input"], found["output"]

    assert guess() == (1, 1)
    words = "many words " * 50
    tool = ToolSpec("look", words, {"title": "look"})
    silent = ToolSpec("look", "", {"title": words})
    for prompt in ({"rows": [Entry("user", words)]}, {"instructions": words}, {"tools": (tool,)}, {"tools": (silent,)}):
        assert guess(**prompt)[0] >= 50 and guess(**prompt)[1] == 1
    assert guess(words)[1] >= 50
    assert begun("m", Prompt([HELLO]))["partial"] is True
