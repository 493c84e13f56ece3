"""A request of WhatsApp's becomes events, and each an Inbound, a reason to leave it, or the field that stands in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.heard import Heard, Ignored
from producers.whatsapp.normalise import normalise
from producers.whatsapp.notifications import events_in, number_of
from shared.codec import message_id
from shared.errors import Malformed
from shared.mail import decode_inbound, encode_mail
from shared.messages import Inbound
from tests.support.anything import spoil
from tests.support.whatsapp import NUMBER, OTHER_NUMBER, a_message, notification

PAYLOADS = Path(__file__).parents[1] / "payloads/whatsapp"
NAMES = sorted(path.stem for path in PAYLOADS.glob("*.json") if "." not in path.stem)
ACCOUNTS = {NUMBER: "", OTHER_NUMBER: OTHER_NUMBER}


def payload(name: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((PAYLOADS / f"{name}.json").read_bytes())
    return found


def heard(body: dict[str, Any]) -> Heard:
    [event] = events_in(body)
    return normalise(event.fields, ACCOUNTS, received_at=1_000)


def inbound(**changes: Any) -> Inbound:
    found = heard(notification(a_message("hello", **changes)))
    assert isinstance(found, Inbound)
    return found


def test_the_wamid_and_the_number_decide_the_message_id() -> None:
    message = a_message("hello", id="A")
    first = heard(notification(message))
    again = heard(notification({**message, "text": {"body": "hello again"}, "timestamp": "1767225699"}))
    other = heard(notification(message, number=OTHER_NUMBER))
    assert isinstance(first, Inbound) and isinstance(again, Inbound) and isinstance(other, Inbound)
    assert first.id == again.id == message_id("whatsapp", "", "wamid.A=")
    assert other.id == message_id("whatsapp", OTHER_NUMBER, "wamid.A=") and other.source.account == OTHER_NUMBER


def test_messages_and_statuses_of_several_numbers_come_in_order_and_belong_to_their_numbers() -> None:
    first = notification(a_message("a"), {"id": "wamid.S=", "status": "read"}, a_message("b", "15554445555"))
    second = notification(a_message("c"), number=OTHER_NUMBER)
    events = events_in({**first, "entry": first["entry"] + second["entry"]})
    assert [number_of(event) for event in events] == [NUMBER, NUMBER, NUMBER, OTHER_NUMBER]
    found = [normalise(event.fields, ACCOUNTS, 0) for event in events]
    assert [one.text for one in found if isinstance(one, Inbound)] == ["a", "b", "c"]
    assert len({event.chat for event in events if "message" in event.fields}) == 3


def test_what_cannot_be_taken_apart_costs_nothing_that_stands_beside_it() -> None:
    body = notification(a_message("a"))
    good = body["entry"][0]
    odd = [5, {"changes": 5}, {"changes": [5]}, {"changes": [{"field": "messages", "value": []}]}]
    odd.append({"changes": [{"field": "messages", "value": {"messages": {}}}]})
    odd.append({"changes": [{"field": "messages", "value": {"messages": [7]}}]})
    events = events_in({**body, "entry": [*odd, good]})
    assert [bool(event.broken) for event in events] == [True] * 6 + [False]
    assert all(event.raw for event in events[:-1])


def test_a_request_about_something_else_is_left() -> None:
    assert heard({"object": "page", "entry": []}) == Ignored("field")


def test_another_contact_in_the_list_lends_nobody_its_name_or_id() -> None:
    body = notification(a_message("hello"))
    value = body["entry"][0]["changes"][0]["value"]
    value["contacts"] = [{"profile": {"name": "Bob"}, "wa_id": "15554445555", "user_id": "US.7"}]
    found = heard(body)
    assert isinstance(found, Inbound)
    assert (found.source.user_name, found.source.user_alt) == (None, None)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"id": 5}, "id is not text"),
        ({"id": None}, "id is missing"),
        ({"id": "é"}, "id is not an id"),
        ({"from": {}}, "from is not text"),
        ({"timestamp": "today"}, "timestamp is not a number of seconds"),
        ({"timestamp": 1767225600}, "timestamp is not text"),
        ({"type": 5}, "type is not text"),
        ({"text": "hello"}, "text is not an object"),
        ({"text": {"body": ["hello"]}}, "body is not text"),
        ({"type": "image", "image": {"id": "a\nb"}}, "id is not the id of a file"),
        ({"type": "location", "location": {"latitude": "1", "longitude": 2}}, "latitude or longitude"),
        ({"type": "order", "order": {"product_items": [{"quantity": []}]}}, "quantity"),
        ({"context": []}, "context is not an object"),
        ({"group_id": 7}, "group_id is not text"),
    ],
)
def test_a_message_that_cannot_be_understood_says_which_field(changes: dict[str, Any], complaint: str) -> None:
    message = a_message("hello") | changes
    [event] = events_in(notification(message))
    with pytest.raises(Malformed, match=complaint):
        normalise(event.fields, ACCOUNTS, 0)


def test_a_name_and_a_text_are_kept_without_nul_and_not_at_any_length() -> None:
    found = heard(notification(a_message("a\0b"), name="A\0" + "n" * 1000))
    assert isinstance(found, Inbound) and found.source.user_name is not None
    assert len(found.source.user_name) == 256 and "\0" not in found.source.user_name + found.text


@given(st.data())
def test_whatever_stands_in_any_place_is_understood_or_malformed(data: st.DataObject) -> None:
    body = payload(data.draw(st.sampled_from(NAMES)))
    spoil(body, data)
    for event in events_in(body):
        number_of(event)
        try:
            found = normalise(event.fields, ACCOUNTS, 0)
        except Malformed:
            continue
        if isinstance(found, Inbound):
            assert decode_inbound(encode_mail(found)) == found
