"""The wire: what cannot be read is Malformed, with a reason, and never anything worse."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.codec import decode_media, decode_source, message_id
from shared.errors import Malformed, TooNew
from shared.mail import INBOUND_VERSION, decode_inbound, encode_mail
from shared.messages import Inbound, Media, Source

FULL = Inbound(
    id="in_1",
    event_id="evt_1",
    source=Source("slack", "C1", "group", "bot", "U1", "alt", "t", "T1", "general", "Ann", "plans"),
    text="hé\0llo \N{PILE OF POO}",
    media=(Media("https://example.org/a.png", "image/png", "a.png"), Media("https://example.org/b")),
    reply_to="evt_0",
    mentioned=False,
    sent_at=1,
    received_at=2,
)
TEXT = st.text(max_size=20)


def record(**changes: Any) -> dict[str, Any]:
    fields = orjson.loads(encode_mail(FULL))["inbound"]
    return {"v": INBOUND_VERSION, "inbound": {**fields, **changes}}


@pytest.mark.parametrize("inbound", [FULL, Inbound("in_1", "e", Source("local", "c"), "hi")])
def test_an_inbound_comes_back_as_it_was(inbound: Inbound) -> None:
    assert decode_inbound(encode_mail(inbound)) == inbound
    assert decode_inbound(encode_mail(inbound).decode()) == inbound


@given(TEXT, TEXT, st.one_of(st.none(), TEXT))
def test_any_text_comes_back_as_it_was(chat: str, text: str, user: str | None) -> None:
    inbound = Inbound("in_1", "e", Source("x", chat, user=user), text)
    assert decode_inbound(encode_mail(inbound)) == inbound


@pytest.mark.parametrize("version", [0, -1, None, "1", 1.0, True, [1], {"v": 1}, "x" * 10_000])
def test_what_is_no_wire_version_is_set_aside_with_its_text(version: object) -> None:
    with pytest.raises(Malformed, match="wire version") as caught:
        decode_inbound(orjson.dumps({**record(), "v": version}))
    assert len(str(caught.value)) < 100
    assert not isinstance(caught.value, TooNew)


@pytest.mark.parametrize("version", [2, 99, 2**63 - 1])
def test_a_newer_wire_version_is_left_to_newer_processes(version: int) -> None:
    with pytest.raises(TooNew, match=f"wire version {version}"):
        decode_inbound(orjson.dumps({**record(), "v": version}))


def test_a_record_without_a_version_is_set_aside() -> None:
    with pytest.raises(Malformed, match="wire version None"):
        decode_inbound(orjson.dumps({"inbound": record()["inbound"]}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"not json",
        b"null",
        b"1",
        b'"text"',
        b"[]",
        b"[" * 100_000,
        b'{"v":1}',
        b'{"v":1,"inbound":null}',
        b'{"v":1,"inbound":[]}',
        b'{"v":1,"inbound":"text"}',
        b'{"v":1,"inbound":[["source",{}],["media",[]]]}',
        b'{"v":1,"inbound":{}}',
        b"\x80\x04\x95pickle",
    ],
)
def test_garbage_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_inbound(data)


@settings(max_examples=500)
@given(st.binary(max_size=60))
def test_no_bytes_are_worse_than_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_inbound(data)


WRONG: list[object] = [None, 1, 1.5, True, "text", [], ["a"], {}, {"a": 1}]
KINDS = {
    "id": ("text",),
    "event_id": ("text",),
    "text": ("text",),
    "source": (),
    "media": ([],),
    "reply_to": (None, "text"),
    "mentioned": (True,),
    "sent_at": (None, 1),
    "received_at": (1,),
}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_field_of_the_wrong_kind_is_malformed(name: str) -> None:
    for value in WRONG:
        data = orjson.dumps(record(**{name: value}))
        if any(value == right and type(value) is type(right) for right in KINDS[name]):
            decode_inbound(data)
        elif name == "media" and value == {}:
            assert decode_inbound(data).media == ()
        else:
            with pytest.raises(Malformed):
                decode_inbound(data)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_missing_field_is_malformed_unless_it_has_a_default(name: str) -> None:
    cut = record()
    del cut["inbound"][name]
    if name in ("reply_to", "mentioned", "sent_at", "received_at"):
        decode_inbound(orjson.dumps(cut))
    else:
        with pytest.raises(Malformed):
            decode_inbound(orjson.dumps(cut))


def test_fields_that_only_a_later_version_knows_are_ignored() -> None:
    """Its receivers write what our workers read while a deployment rolls."""
    picture = {"url": "u", "type": None, "name": None}
    ours = record(media=[picture])
    later = record(
        colour="red",
        source={**record()["inbound"]["source"], "colour": "red"},
        media=[{**picture, "colour": "red"}],
    )
    assert decode_inbound(orjson.dumps(later)) == decode_inbound(orjson.dumps(ours))


@pytest.mark.parametrize(
    "fields",
    [
        *(None, [], "x", {}, {"platform": "x"}, {"platform": 1, "chat": "c"}, {"platform": "x", "chat": None}),
        {"platform": "x", "chat": "c", "user": 5},
        {"platform": "x", "chat": "c", "account": None},
    ],
)
def test_a_source_of_the_wrong_shape_is_malformed(fields: object) -> None:
    with pytest.raises(Malformed):
        decode_source(fields)


@pytest.mark.parametrize("items", [None, 1, ["x"], [[]], [{}], [{"url": 1}], [{"url": "u", "type": 1}], [{"x": 1}]])
def test_media_of_the_wrong_shape_are_malformed(items: object) -> None:
    with pytest.raises(Malformed):
        decode_media(items)


def test_text_that_is_not_unicode_is_malformed_when_written() -> None:
    with pytest.raises(Malformed):
        encode_mail(Inbound("in_1", "e", Source("x", "c"), "half a pair: \ud83d"))
    with pytest.raises(Malformed):
        message_id("x", "", "\ud83d")


def test_a_message_id_follows_from_where_the_event_happened() -> None:
    assert message_id("slack", "", "e1") == message_id("slack", "", "e1")
    ids = {
        message_id(*place) for place in [("slack", "", "e1"), ("slack", "e1", ""), ("slack", "", "e2"), ("x", "", "e1")]
    }
    assert len(ids) == 4 and all(len(id) == 33 and id.startswith("in_") for id in ids)
