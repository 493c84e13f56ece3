"""What Feishu's events are to us: names for placeholders, words for every type, and Malformed for every wrong value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.feishu.normalise import FeishuBot, chat_of, normalise
from producers.feishu.secrecy import opened
from producers.heard import Ignored
from shared.errors import Malformed
from shared.mail import decode_inbound, encode_mail
from shared.messages import Inbound

PAYLOADS = Path(__file__).parents[1] / "payloads/feishu"
NAMES = sorted(path.stem for path in PAYLOADS.glob("*.json") if "." not in path.stem)
BOT = FeishuBot("cli_a1", "ou_bot", "Helper")


def payload(name: str) -> dict[str, Any]:
    return opened([b"test key"], orjson.loads((PAYLOADS / f"{name}.json").read_bytes()))


def inbound(fields: dict[str, Any]) -> Inbound:
    found = normalise(fields, BOT, 0)
    assert isinstance(found, Inbound)
    return found


def with_message(**changes: Any) -> dict[str, Any]:
    fields = payload("group_mention")
    fields["event"]["message"].update(changes)
    return fields


def with_text(text: str, **changes: Any) -> dict[str, Any]:
    return with_message(content=orjson.dumps({"text": text}).decode(), **changes)


def test_a_message_is_known_by_its_own_id_whatever_event_brings_it() -> None:
    first, again = payload("direct"), payload("direct")
    again["header"]["event_id"] = "another"
    assert inbound(first).id == inbound(again).id
    assert inbound(first).id != inbound(payload("group_mention")).id


def test_a_message_that_comes_in_both_forms_is_one() -> None:
    old, new = payload("old_form_direct"), payload("direct")
    new["event"]["message"]["message_id"] = old["event"]["open_message_id"]
    assert inbound(old).id == inbound(new).id


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("@_user_1 hello", "hello"),
        ("@_user_1, hello", "hello"),
        ("@_user_1：你好", "你好"),
        ("@_user_1 @_user_1 hello", "hello"),
        ("hello @_user_1", "hello"),
        ("hello @_user_1!", "hello!"),
        ("@_user_1 /new", "/new"),
        ("@_user_2 and @_user_2", "@Bob and @Bob"),
        ("@_user_12", "@_user_12"),
        ("@_all and @_user_2", "@all and @Bob"),
        ("a\n b", "a\n b"),
        ("nul \0 here", "nul � here"),
    ],
)
def test_a_text_is_what_people_read(raw: str, text: str) -> None:
    assert inbound(with_text(raw)).text == text


def test_whoever_is_called_like_a_placeholder_is_named_once() -> None:
    fields = with_text("@_user_2 hi")
    fields["event"]["message"]["mentions"][1]["name"] = "@_user_1"
    assert inbound(fields).text == "@@_user_1 hi"


def test_only_the_bots_own_id_is_a_mention_of_it() -> None:
    fields = with_text("@_user_1 hi")
    fields["event"]["message"]["mentions"][0]["id"]["open_id"] = "ou_other"  # of the same name
    assert not inbound(fields).mentioned
    assert inbound(fields).text == "@Helper hi"


def test_a_bot_that_calls_itself_a_user_is_known_by_its_id() -> None:
    fields = with_text("hi")
    fields["event"]["sender"]["sender_id"]["open_id"] = "ou_bot"
    assert normalise(fields, BOT, 0) == Ignored("bot")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "type is not text"),
        ({"schema": "2.0"}, "header is not an object"),
        ({"schema": "2.0", "header": {}}, "event_type is not text"),
        ({"schema": 2.0, "type": "event_callback"}, "event is not an object"),
        ({"type": "event_callback", "event": {}}, "type is not text"),
        (with_message(chat_id=None), "chat_id is not an id"),
        (with_message(chat_id="../x"), "chat_id is not an id"),
        (with_message(message_id="om_1/reply"), "message_id is not an id"),
        (with_message(thread_id=5), "thread_id is not text"),
        (with_message(create_time=1767225600000), "create_time is not text"),
        (with_message(create_time="soon"), "create_time is not a time"),
        (with_message(create_time="١٢٣"), "create_time is not a time"),
        (with_message(content=None), "not JSON"),
        (with_message(content={"text": "x"}), "content is not text"),
        (with_message(content="[]"), "not a JSON object"),
        (with_message(content='{"text": 5}'), "text is not text"),
        (with_message(content='{"text": "%s"}' % ("x" * 200_001)), "content is not text"),
        (with_message(mentions={}), "mentions is not a list"),
        (with_message(mentions=[{}]), "key is not text"),
        (with_message(message_type="image", content="{}"), "image_key is not a key"),
        (with_message(message_type="file", content='{"file_key": "../../x"}'), "file_key is not a key"),
        (with_message(message_type="post", content="{}"), "content is not a list of lines"),
        (with_message(message_type="post", content='{"content": [5]}'), "line is not a list"),
    ],
)
def test_a_payload_that_cannot_be_understood_says_which_field(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        normalise(fields, BOT, 0)


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(max_size=5)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from _places(inner, (*path, name))


def _spoil(fields: Any, data: st.DataObject) -> None:
    *path, last = data.draw(st.sampled_from([place for place in _places(fields) if place]))
    for name in path:
        fields = fields[name]
    fields[last] = data.draw(JSON)


@given(st.data())
def test_whatever_stands_in_any_place_is_understood_or_malformed(data: st.DataObject) -> None:
    fields = payload(data.draw(st.sampled_from(NAMES)))
    message = fields.get("event", {}).get("message", {})
    if message.get("content", "").startswith("{") and data.draw(st.booleans()):  # of a forwarded message it is no JSON
        content = orjson.loads(message["content"])
        _spoil({"content": content}, data)
        message["content"] = orjson.dumps(content).decode()
    else:
        _spoil(fields, data)
    chat_of(fields)
    try:
        found = normalise(fields, BOT, 0)
    except Malformed:
        return
    if isinstance(found, Inbound):
        assert decode_inbound(encode_mail(found)) == found


@pytest.mark.parametrize(
    "fields", [{}, {"event": 1}, {"event": {"message": 1}}, {"event": {"message": {"chat_id": 5}}}]
)
def test_an_event_without_a_chat_has_an_order_of_its_own(fields: dict[str, Any]) -> None:
    assert chat_of(fields) == ""


def test_events_of_a_chat_share_its_order() -> None:
    assert {chat_of(payload(name)) for name in ("group_mention", "thread", "old_form_group_mention")} == {"oc_group"}
