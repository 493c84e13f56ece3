"""A Telegram update becomes an Inbound, a reason to leave it, or says which field stands in the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import telegram
from hypothesis import given
from hypothesis import strategies as st

from producers.heard import Ignored
from producers.telegram.normalise import TelegramMe, chat_of, normalise
from shared.codec import message_id
from shared.errors import Malformed
from shared.mail import decode_inbound, encode_mail
from shared.messages import Inbound

PAYLOADS = Path(__file__).parents[1] / "payloads/telegram"
NAMES = sorted(path.stem for path in PAYLOADS.glob("*.json") if "." not in path.stem)
BOT = TelegramMe("99", "helper_bot")


def payload(name: str) -> dict[str, Any]:
    update: dict[str, Any] = orjson.loads((PAYLOADS / f"{name}.json").read_bytes())
    return update


def a_message(**changes: Any) -> dict[str, Any]:
    message = {"message_id": 1, "date": 1, "chat": {"id": 11, "type": "private"}, "from": {"id": 11}, "text": "hello"}
    return {"update_id": 1, "message": {**message, **changes}}


def inbound(update: dict[str, Any], bot: TelegramMe = BOT) -> Inbound:
    found = normalise(update, bot, received_at=1_000)
    assert isinstance(found, Inbound)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_payloads_are_such_as_telegram_sends(name: str) -> None:
    """python-telegram-bot understands all of them, and finds nothing in them that it does not know."""
    update = telegram.Update.de_json(payload(name), None)
    assert update.update_id == payload(name)["update_id"]
    assert [strange for found in _objects(update) for strange in found.api_kwargs] == []


def _objects(found: telegram.TelegramObject) -> Iterator[telegram.TelegramObject]:
    yield found
    for slot in (name for kind in type(found).__mro__ for name in getattr(kind, "__slots__", ())):
        value = getattr(found, slot, None) if not slot.startswith("_") else None
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, telegram.TelegramObject):
                yield from _objects(item)


def test_bot_chat_and_message_decide_the_message_id_and_the_update_does_not() -> None:
    known = inbound(a_message())
    assert known.id == message_id("telegram", "", "99:11:1")
    assert inbound({**a_message(), "update_id": 2}).id == known.id
    others = [
        inbound(a_message(message_id=2)),
        inbound(a_message(chat={"id": 12, "type": "private"})),
        inbound(a_message(), TelegramMe("98", "other_bot")),
        inbound(a_message(), TelegramMe("99", "helper_bot", "work")),
        inbound({"update_id": 1, "channel_post": a_message(chat={"id": -5, "type": "channel"})["message"]}),
    ]
    assert len({known.id, *(other.id for other in others)}) == 6


@pytest.mark.parametrize("reply", [None, 7, "x", [], {"forum_topic_created": None}, {"forum_topic_created": "x"}])
def test_a_topics_name_that_is_not_there_is_no_reason_to_refuse_a_message(reply: Any) -> None:
    message = a_message(reply_to_message=reply, chat={"id": -5, "type": "supergroup"}, is_topic_message=True)
    if isinstance(reply, dict) or reply is None:
        assert inbound(message).source.topic is None
    else:  # what it answers has to be an object
        with pytest.raises(Malformed):
            normalise(message, BOT, received_at=1_000)


def test_a_channel_speaks_for_itself_when_nobody_signed() -> None:
    post = {"message_id": 1, "chat": {"id": -5, "type": "channel", "title": "News"}, "text": "x"}
    assert inbound({"update_id": 1, "channel_post": post}).source.user == "-5"
    assert normalise(a_message(**{"from": None}), BOT, 0) == Ignored("no sender")


def test_a_name_is_kept_but_not_at_any_length_and_without_nul() -> None:
    made = inbound(a_message(**{"from": {"id": 11, "first_name": "A\0" + "n" * 1000}}, text="a\0b"))
    assert made.source.user_name is not None and len(made.source.user_name) == 256
    assert "\0" not in made.source.user_name + made.text


@pytest.mark.parametrize("text", ["@helper_bot", "@helper_bot  "])
def test_a_bare_mention_is_kept_because_something_was_said(text: str) -> None:
    group = {"id": -1, "type": "group"}
    entities = [{"type": "mention", "offset": 0, "length": 11}]
    made = inbound(a_message(chat=group, text=text, entities=entities))
    assert (made.text, made.mentioned) == (text, True)


@pytest.mark.parametrize("kind", ["bold", "mention"])
def test_an_entity_without_any_length_lies_in_its_text(kind: str) -> None:
    assert inbound(a_message(entities=[{"type": kind, "offset": 0, "length": 0}])).text == "hello"


@pytest.mark.parametrize(
    ("update", "complaint"),
    [
        ({}, "update_id is not a number"),
        ({"update_id": "1"}, "update_id is not a number"),
        ({"update_id": True}, "update_id is not a number"),
        ({"update_id": 2**70}, "update_id is not a number"),
        ({"update_id": 1, "message": []}, "message is not an object"),
        (a_message(chat=None), "chat is not an object"),
        (a_message(chat={"id": "x", "type": "private"}), "id is not a number"),
        (a_message(text=5), "text is not text"),
        (a_message(text="x" * 200_001), "text is not text"),
        (a_message(entities={}), "entities is not a list"),
        (a_message(entities=[1]), "entities is not a list"),
        (a_message(entities=[{"type": "mention", "offset": -1, "length": 1}]), "outside its text"),
        (a_message(entities=[{"type": "bold", "offset": 0, "length": -1}]), "outside its text"),
        (a_message(entities=[{"type": "mention", "offset": 0}]), "length is not a number"),
        (a_message(date="today"), "date is not a number"),
        (a_message(photo=[{}]), "file_id is not an id"),
        (a_message(voice={"file_id": "a\nb"}), "file_id is not an id"),
        (a_message(**{"from": {"id": "11"}}), "id is not a number"),
    ],
)
def test_an_update_that_cannot_be_understood_says_which_field(update: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        normalise(update, BOT, 0)


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


@given(st.data())
def test_whatever_stands_in_any_place_is_understood_or_malformed(data: st.DataObject) -> None:
    update = payload(data.draw(st.sampled_from(NAMES)))
    *path, last = data.draw(st.sampled_from([place for place in _places(update) if place]))
    holder: Any = update
    for name in path:
        holder = holder[name]
    holder[last] = data.draw(JSON)
    chat_of(update)
    try:
        found = normalise(update, BOT, 0)
    except Malformed:
        return
    if isinstance(found, Inbound):
        assert decode_inbound(encode_mail(found)) == found


@given(st.text(max_size=30), st.text(max_size=30))
def test_a_mention_is_found_wherever_it_stands(before: str, after: str) -> None:
    """Offsets are UTF-16 units, whatever characters come before."""
    offset = len(before.encode("utf-16-le")) // 2
    entities = [{"type": "mention", "offset": offset, "length": 11}]
    message = a_message(chat={"id": -1, "type": "group"}, text=f"{before}@helper_bot{after}", entities=entities)
    assert inbound(message).mentioned
    entities[0]["offset"] = offset + 1
    assert not inbound(message).mentioned


@pytest.mark.parametrize(
    "update", [{}, {"message": 1}, {"message": {"chat": []}}, {"edited_message": {"chat": {"id": 1}}}]
)
def test_an_update_without_a_chat_of_ours_has_an_order_of_its_own(update: dict[str, Any]) -> None:
    assert chat_of(update) == ""


def test_updates_of_a_chat_share_its_order() -> None:
    assert chat_of(payload("forum_topic")) == chat_of(payload("supergroup_command")) == "-1001500"
    assert chat_of(payload("channel_post")) == "-1001900"
