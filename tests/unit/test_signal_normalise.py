"""What signal-cli's daemon says becomes an Inbound, a reason to leave it, or says which field stands in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.heard import Event
from producers.signal.mentions import SignalAccount
from producers.signal.normalise import normalise
from producers.signal.stream import SignalStream, chat_of
from shared.codec import message_id
from shared.errors import Malformed
from shared.mail import decode_inbound, encode_mail
from shared.messages import Inbound
from tests.support.anything import spoil
from tests.support.signal import ACCOUNT, ANN, ANN_UUID, GROUP, OWN_UUID, an_event, in_group

PAYLOADS = Path(__file__).parents[1] / "payloads/signal"
NAMES = sorted(path.stem for path in PAYLOADS.glob("*.json") if "." not in path.stem)
ME = SignalAccount(ACCOUNT, OWN_UUID)
MENTION = {"number": ACCOUNT, "uuid": OWN_UUID, "start": 0, "length": 1}


def payload(name: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((PAYLOADS / f"{name}.json").read_bytes())
    return found


def inbound(fields: dict[str, Any], me: SignalAccount = ME) -> Inbound:
    found = normalise(fields, me, received_at=1_000)
    assert isinstance(found, Inbound)
    return found


def test_sender_and_time_decide_the_message_id_and_the_rest_does_not() -> None:
    known = inbound(an_event("hello", 5))
    assert known.id == message_id("signal", "", f"{ANN_UUID}:5")
    assert inbound(an_event("hello", 5, (None, ANN_UUID))).id == known.id  # the number was hidden meanwhile
    others = [inbound(an_event("hello", 6)), inbound(an_event("hello", 5, (None, OWN_UUID[:-1] + "9")))]
    assert len({known.id, *(other.id for other in others)}) == 3


def test_a_conversation_stays_the_same_when_the_number_is_hidden_or_changes() -> None:
    shown, hidden = inbound(an_event("a", 1)), inbound(an_event("a", 1, (None, ANN_UUID)))
    changed = inbound(an_event("a", 1, ("+15557778888", ANN_UUID)))
    for found in (shown, hidden, changed):
        assert (found.source.chat, found.source.user_alt) == (ANN_UUID, ANN_UUID)
    groups = [inbound(an_event("a", 1, person, **in_group())) for person in ((ANN, ANN_UUID), (None, ANN_UUID))]
    assert len({(found.source.chat, found.source.user_alt) for found in groups}) == 1


def test_without_its_uuid_the_bot_is_known_by_its_number() -> None:
    event = an_event("\ufffc hi", 1, **in_group(mentions=[{"number": ACCOUNT, "start": 0, "length": 1}]))
    assert inbound(event, SignalAccount(ACCOUNT)).mentioned
    by_uuid = an_event("\ufffc hi", 1, **in_group(mentions=[{"uuid": OWN_UUID, "start": 0, "length": 1}]))
    assert not inbound(by_uuid, SignalAccount(ACCOUNT)).mentioned


def test_a_bare_mention_is_kept_because_something_was_said() -> None:
    found = inbound(an_event("\ufffc ", 1, **in_group(mentions=[{**MENTION, "name": "Helper"}])))
    assert (found.text, found.mentioned) == ("@Helper ", True)


@given(st.text(max_size=30), st.text(max_size=30))
def test_a_mention_is_named_wherever_it_stands(before: str, after: str) -> None:
    """Offsets are UTF-16 units, whatever characters come before."""
    start = len(before.encode("utf-16-le")) // 2
    mention = {"name": "Bob", "uuid": ANN_UUID, "start": start, "length": 1}
    found = inbound(an_event(f"{before}\ufffc{after}", 1, **in_group(mentions=[mention])))
    assert found.text == f"{before}@Bob{after}".replace("\0", "\ufffd") and not found.mentioned


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"message": 5}, "message is not text"),
        ({"timestamp": "x"}, "timestamp is not a number"),
        ({"mentions": {}}, "mentions is not a list"),
        ({"mentions": [{**MENTION, "start": -1}]}, "outside its text"),
        ({"mentions": [{**MENTION, "length": None}]}, "length is not a number"),
        ({"attachments": [{}]}, "id is not the id of a file"),
        ({"attachments": [{"id": "a\nb"}]}, "id is not the id of a file"),
        ({"groupInfo": []}, "groupInfo is not an object"),
        ({"groupInfo": {}}, "groupId is not an id"),
        ({"quote": 5}, "quote is not an object"),
        ({"quote": {"id": "x"}}, "id is not a number"),
        ({"quote": {"id": 1, "authorUuid": "Ann"}}, "authorUuid is not an id"),
    ],
)
def test_a_message_that_cannot_be_understood_says_which_field(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        normalise(an_event("hello", 1, **changes), ME, 0)


@given(st.data())
def test_whatever_stands_in_any_place_is_understood_or_malformed(data: st.DataObject) -> None:
    fields = payload(data.draw(st.sampled_from(NAMES)))
    spoil(fields, data)
    chat_of(fields)
    try:
        found = normalise(fields, ME, 0)
    except Malformed:
        return
    if isinstance(found, Inbound):
        assert decode_inbound(encode_mail(found)) == found


def fed(text: bytes) -> tuple[list[Event], SignalStream]:
    stream = SignalStream()
    return [event for line in text.split(b"\n") if (event := stream.feed(line)) is not None], stream


def test_events_are_put_together_from_their_lines() -> None:
    data = orjson.dumps(an_event("hello", 5, **in_group()))
    events, stream = fed(
        b":\n\nid:run-7\nevent:receive\ndata: " + data + b"\n\n:keep-alive\n\nevent:other\ndata:{}\n\n"
    )
    [event] = events
    assert (event.fields, event.chat, stream.last_id) == (orjson.loads(data), GROUP, "run-7")
    assert event.ref.startswith("5-")


def test_data_in_several_lines_is_one_event_and_what_is_no_json_is_a_broken_one() -> None:
    several, _ = fed(b'data:{"envelope":\ndata:{}}\n\n')
    assert [event.fields for event in several] == [{"envelope": {}}]
    broken, _ = fed(b"data:{\n\ndata:\xff\n\ndata:[]\n\n")
    assert [bool(event.broken) for event in broken] == [True] * 3 and broken[0].raw == b"{"


def test_two_events_of_one_moment_are_two() -> None:
    typing, message = payload("typing"), payload("direct")
    events, _ = fed(b"\n\n".join(b"data:" + orjson.dumps(one) for one in (typing, message)) + b"\n\n")
    assert len({event.ref for event in events}) == 2


@given(st.binary(max_size=200))
def test_no_bytes_break_the_stream(text: bytes) -> None:
    fed(text)
    fed(b"data:" + text + b"\n\n")
