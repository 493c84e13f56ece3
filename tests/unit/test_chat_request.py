"""The JSON of a chat completion: what is understood, and what is refused with the name of the field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given

from producers.api.chat.inbound import Asked, inbound_of
from producers.api.chat.request import MESSAGES_LIMIT, NOT_SHOWN, TEXT_LIMIT, ChatRequest, InlineImage, read_request
from producers.api.chat.tasks import task_of
from producers.api.keys import Caller
from shared.errors import Malformed
from shared.mail import decode_inbound, encode_mail
from shared.messages import Media
from tests.support.anything import JSON

USER = {"role": "user", "content": "hello"}


def request(*messages: Any, **fields: Any) -> ChatRequest:
    return read_request({"messages": [*messages], **fields})


def asked(read: ChatRequest, **headers: str) -> Asked:
    return Asked(read, {name.replace("_", "-"): text for name, text in headers.items()}, Caller("shop", "key shop"), "")


def test_the_last_words_of_a_user_are_asked_and_all_before_them_is_history() -> None:
    read = request(
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "three"},
    )
    assert (read.instructions, read.text) == ("Be kind.\n\nBe brief.", "three")
    assert [(row.role, row.text) for row in read.history] == [("user", "one"), ("assistant", "two")]


def test_tool_calls_and_their_results_are_rows_that_belong_together() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    read = request(
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        USER,
    )
    _, made, result = read.history
    assert made.data["tool_calls"] == [{"id": "c1", "name": "look", "arguments": "{}"}]
    assert (result.role, result.text, result.data["tool_call_id"]) == ("tool", "42", "c1")


def test_images_are_taken_by_address_or_as_they_are_and_of_any_other_file_there_is_a_note() -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA"}},
        {"type": "nobody knows"},
    ]
    read = request({"role": "user", "content": parts})
    inline = InlineImage("data:image/png;base64,AAAA", "messages[0].content")
    assert read.media == (Media("https://example.org/a.png", "image"), inline)
    assert read.text == "\n".join(["look", *[NOT_SHOWN] * 3]) and "AAAA" not in read.text
    assert read.inline_characters == len(inline.address)


def test_what_a_user_said_before_is_compared_without_its_images() -> None:
    """The transcript has the words, and the images beside them."""
    images = [{"type": "image_url", "image_url": {"url": url}} for url in ("https://x.example/a.png", "data:,x")]
    read = request({"role": "user", "content": [{"type": "text", "text": "look"}, *images]}, USER)
    assert [row.text for row in read.history] == [f"look\n[image: https://x.example/a.png]\n{NOT_SHOWN}"]
    terms = inbound_of(asked(read, x_keyturn_session="c1"), 1000).terms
    assert terms is not None and terms.said_before == ("look",)


def test_fields_that_nobody_knows_are_ignored() -> None:
    read = request(USER, temperature=0.5, logit_bias={"1": 2}, penalty=[1], stream=None, user=None, n=1)
    assert (read.text, read.is_streamed) == ("hello", False)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": None},
        {"messages": []},
        {"messages": {}},
        {"messages": "hello"},
        {"messages": [1]},
        {"messages": [None]},
        {"messages": [[]]},
        {"messages": [{"content": "no role"}]},
        {"messages": [{"role": "root", "content": "x"}]},
        {"messages": [{"role": ["user"], "content": "x"}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": ""}]},
        {"messages": [{"role": "user", "content": "   "}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": {"type": "text"}}]},
        {"messages": [{"role": "user", "content": [5]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
        {"messages": [{"role": "system", "content": "alone"}]},
        {"messages": [{"role": "assistant", "content": "alone"}]},
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": 5}, USER]},
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": [5]}, USER]},
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{"function": 5}]}, USER]},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": 5}, USER]},
        {"messages": [USER], "model": 5},
        {"messages": [USER], "stream": "yes"},
        {"messages": [USER], "stream_options": []},
        {"messages": [USER], "stream_options": {"include_usage": 1}},
        {"messages": [USER], "metadata": "x"},
        {"messages": [USER], "metadata": {"conversation_id": 5}},
        {"messages": [USER], "user": {"id": 1}},
        {"messages": [USER] * (MESSAGES_LIMIT + 1)},
        {"messages": [{"role": "user", "content": "x" * (TEXT_LIMIT + 1)}]},
    ],
)
def test_what_cannot_be_understood_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(Malformed) as refused:
        read_request(body)
    assert len(str(refused.value)) < 200


@given(JSON)
def test_whatever_is_sent_is_understood_or_refused(found: Any) -> None:
    for body in (
        {"messages": found},
        {"messages": [found, USER]},
        {"messages": [USER, {"role": "user", "content": found}]},
    ):
        try:
            inbound = inbound_of(asked(read_request(body)), 1)
        except Malformed:
            continue
        assert decode_inbound(encode_mail(inbound)) == inbound


def test_a_message_comes_out_of_the_journal_as_it_went_in_with_all_its_terms() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    read = request(
        {"role": "system", "content": "Be kind."}, USER, {"role": "assistant", "tool_calls": [call]}, USER, user="u1"
    )
    inbound = inbound_of(asked(read), 1)
    assert inbound.terms is not None and inbound.is_stateless and inbound.terms.is_watched
    assert decode_inbound(encode_mail(inbound)) == inbound


def test_a_process_from_before_there_were_terms_leaves_such_a_message_and_takes_any_other() -> None:
    inbound = inbound_of(asked(request(USER)), 1)
    assert set(orjson.loads(encode_mail(inbound))) == {"v", "asked"}  # a kind of mail that it does not know
    plain = orjson.loads(encode_mail(replace(inbound, terms=None)))
    assert set(plain) == {"v", "inbound"} and "terms" not in plain["inbound"]


@pytest.mark.parametrize(
    "terms",
    [
        5,
        [],
        {"history": 5},
        {"history": [5]},
        {"history": None, "agent": 5},
        {"history": [{}]},
        {"history": None, "said_before": [5]},
    ],
)
def test_terms_that_make_no_sense_are_malformed_and_no_crash(terms: Any) -> None:
    record = orjson.loads(encode_mail(inbound_of(asked(request(USER)), 1)))
    record["asked"]["terms"] = terms
    with pytest.raises(Malformed):
        decode_inbound(orjson.dumps(record))


def test_who_speaks_is_told_by_open_webuis_headers_or_by_the_body_and_else_by_nobody() -> None:
    read = request(USER, user="body")
    by_header = inbound_of(asked(read, x_openwebui_user_id="u7", x_openwebui_user_name="J%C3%B6rg M"), 1).source
    assert (by_header.user, by_header.user_name, by_header.account) == ("u7", "Jörg M", "shop")
    assert inbound_of(asked(read), 1).source.user == "body"
    assert inbound_of(asked(request(USER)), 1).source.user is None


@pytest.mark.parametrize("headers", [{"x_keyturn_session": "x" * 300}, {"x_openwebui_user_id": "x" * 300}])
def test_an_id_that_is_too_long_is_refused(headers: dict[str, str]) -> None:
    from shared.routing import key_for
    from shared.settings import Settings

    with pytest.raises(Malformed):
        key_for(inbound_of(asked(request(USER), **headers), 1), Settings(_env_file=None))  # type: ignore[call-arg]


# Open WebUI's tasks. The prompts have the form of its own, with words of ours.

PROMPT = '### Task:\nName it.\n### Output:\nJSON format: { "%s": "…" }\n### Chat History:\n<chat_history>\nUSER: How do I bake bread?\nASSISTANT: With flour.\n</chat_history>'


@pytest.mark.parametrize(
    ("task", "form", "answer"),
    [
        ("title_generation", "title", {"title": "How do I bake bread?"}),
        ("tags_generation", "tags", {"tags": []}),
        ("follow_up_generation", "follow_ups", {"follow_ups": []}),
        ("query_generation", "queries", {"queries": []}),
    ],
)
def test_a_task_is_known_by_its_header_and_by_its_prompt(task: str, form: str, answer: dict[str, Any]) -> None:
    read = request({"role": "user", "content": PROMPT % form})
    for one in (asked(read, x_openwebui_task=task), asked(read)):
        found = task_of(one)
        assert found is not None
        assert orjson.loads(found.answer(one, None) or "") == answer


def test_the_title_of_the_conversation_is_given_where_it_has_one() -> None:
    one = asked(request({"role": "user", "content": PROMPT % "title"}))
    found = task_of(one)
    assert found is not None and orjson.loads(found.answer(one, "Bread") or "") == {"title": "Bread"}


@pytest.mark.parametrize("text", ["### Task: bake", "What is <chat_history>?", "hello", "### Task:\nbake bread"])
def test_what_a_user_says_is_no_task(text: str) -> None:
    assert task_of(asked(request({"role": "user", "content": text}))) is None


def test_a_task_that_nobody_knows_is_asked_of_the_agent() -> None:
    one = asked(request(USER), x_openwebui_task="moa_response_generation")
    found = task_of(one)
    assert found is not None and found.answer(one, None) is None
