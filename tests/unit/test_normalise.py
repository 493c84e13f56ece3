"""The generic webhook's body becomes an Inbound, or says which field stands in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.heard import parse_json as parse
from producers.message_body import MEDIA_LIMIT, NAME_LIMIT, TEXT_LIMIT, event_id_of, normalise
from shared.errors import Malformed
from shared.mail import decode_inbound, encode_mail
from shared.messages import Inbound


def made(fields: Any) -> Inbound:
    return normalise(fields, "webhook", event_id_of(fields) or "msg_1", received_at=1_000)


def body(**changes: Any) -> dict[str, Any]:
    return {"chat": {"id": "c1"}, "user": {"id": "u1"}, "text": "hello", **changes}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"{",
        b"\xff\xfe{}",
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b"[" * 500_000 + b"]" * 500_000,
        b'{"text": "\\ud800"}',
        b'{"text": "\xed\xa0\x80"}',
        b'{"n": 1e999}',
        b"{'text': 'x'}",
        b'{"text": NaN}',
        b'{"text": "x"} {"text": "y"}',
    ],
)
def test_what_is_not_json_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed, match="the body is not JSON"):
        parse(data)


@pytest.mark.parametrize("data", [b"null", b"1", b'"text"', b"[]", b"[{}]", b"true", b"123456789012345678901234567890"])
def test_json_that_is_no_object_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed, match="not a JSON object"):
        parse(data)


@given(st.binary(max_size=200))
def test_no_body_is_worse_than_malformed(data: bytes) -> None:
    try:
        made(parse(data))
    except Malformed:
        return


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(max_size=5)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)
KNOWN = ["id", "chat", "user", "thread", "text", "media", "reply_to", "mentioned", "sent_at"]


@given(st.sampled_from(KNOWN), JSON)
def test_any_value_in_any_field_is_understood_or_malformed(name: str, value: Any) -> None:
    complaint = ""
    try:
        inbound = made(parse(orjson.dumps(body(**{name: value}))))
        assert decode_inbound(encode_mail(inbound)) == inbound
    except Malformed as error:
        complaint = str(error)
    assert complaint.isprintable() and len(complaint) < 200


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "chat is needed"),
        ({"chat": {"id": "c"}}, "user is needed"),
        (body(chat=None), "chat is needed"),
        (body(chat="c1"), "chat is needed"),
        (body(chat=[]), "chat is needed"),
        (body(chat={}), "chat.id is needed"),
        (body(chat={"id": ""}), "chat.id is needed"),
        (body(chat={"id": None}), "chat.id is needed"),
        (body(chat={"id": True}), "chat.id is not text"),
        (body(chat={"id": 1.5}), "chat.id is not text"),
        (body(chat={"id": 10.0**30}), "chat.id is not text"),
        (body(chat={"id": ["c"]}), "chat.id is not text"),
        (body(chat={"id": "a\0b"}), "chat.id holds a NUL"),
        (body(chat={"id": "a" * 257}), "too long"),
        (body(chat={"id": "c", "type": "party"}), "chat.type is none of"),
        (body(chat={"id": "c", "type": []}), "chat.type is none of"),
        (body(chat={"id": "c", "name": 5}), "chat.name is not text"),
        (body(chat={"id": "c", "name": "x" * (NAME_LIMIT + 1)}), "chat.name is longer"),
        (body(chat={"id": "c", "colour": 1}), "unknown field: chat.'colour'"),
        (body(user={}), "user.id is needed"),
        (body(user={"id": "\0"}), "user.id holds a NUL"),
        (body(user={"id": "u", "role": "admin"}), "unknown field: user.'role'"),
        (body(thread={}), "thread is not text"),
        (body(thread="\0"), "thread holds a NUL"),
        (body(reply_to=[1]), "reply_to is not text"),
        (body(text=5), "text is not text"),
        (body(text=""), "text or media is needed"),
        (body(text=None, media=[]), "text or media is needed"),
        (body(text="x" * (TEXT_LIMIT + 1)), "text is longer"),
        (body(mentioned="yes"), "mentioned is not true or false"),
        (body(mentioned=0), "mentioned is not true or false"),
        (body(sent_at=5), "sent_at is not a time"),
        (body(sent_at="soon"), "sent_at is not a time"),
        (body(sent_at="9999-99-99"), "sent_at is not a time"),
        (body(media={}), "media is not a list"),
        (body(media=[{"url": "https://x"}] * (MEDIA_LIMIT + 1)), "media is not a list"),
        (body(media=["https://x"]), "media items are objects"),
        (body(media=[{}]), "media.url is needed"),
        (body(media=[{"url": "file:///etc/passwd"}]), "media.url is needed"),
        (body(media=[{"url": "javascript:alert(1)"}]), "media.url is needed"),
        (body(media=[{"url": "https://x", "path": "/"}]), "unknown field: media.'path'"),
        (body(id=True), "id is not text"),
        (body(id={}), "id is not text"),
        (body(id="a\0"), "id holds a NUL"),
        (body(id="a" * 257), "too long"),
        (body(colour="red"), "unknown field: 'colour'"),
        (body(**{"a\0\n\u202e": 1}), r"unknown field: 'a\\x00\\n\\u202e'"),
    ],
)
def test_a_body_that_cannot_be_understood_says_which_field(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        made(fields)


def test_the_event_id_decides_the_message_id() -> None:
    make: Callable[[str], str] = lambda id: made(body(id=id)).id  # noqa: E731
    assert make("evt_1") == make("evt_1") != make("evt_2")
    assert normalise(body(), "api", "evt_1", 0).id != normalise(body(), "webhook", "evt_1", 0).id
