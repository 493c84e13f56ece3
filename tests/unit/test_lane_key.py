"""The keys of the lanes: values with one text form each, told apart in one module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.errors import Malformed
from shared.lane_key import (
    CONTROL,
    DELIVERIES,
    TURNS,
    ControlKey,
    Destination,
    LaneKey,
    conversation_of,
    lane_of,
    parse_key,
)
from shared.messages import Source
from shared.owner import owner_of
from shared.session_key import SessionKey, like_keys_in
from shared.unreadable import stand_in

CONVERSATION = SessionKey("main", "telegram", "second", "group", "-100", thread="17", user="a b")
KEYS: list[tuple[LaneKey, str, str]] = [
    (CONVERSATION, "agent:main:telegram@second:group:-100:t=17:u=a%20b", TURNS),
    (ControlKey(CONVERSATION), "control:agent:main:telegram@second:group:-100:t=17:u=a%20b", CONTROL),
    (Destination("matrix", "", "!room:example.org"), "to:matrix:!room%3Aexample.org", DELIVERIES),
    (Destination("telegram", "second", "-100"), "to:telegram@second:-100", DELIVERIES),
]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("key", "text", "lane"), KEYS)
def test_a_text_gives_back_its_key_and_says_the_lane(key: LaneKey, text: str, lane: str) -> None:
    assert str(key) == text
    assert parse_key(text) == key
    assert lane_of(text) == lane


@given(st.text(min_size=1), st.text())
@example("a:b", "@")
def test_every_destination_comes_back_as_it_was(chat: str, account: str) -> None:
    destination = Destination("x", account, chat)
    assert Destination.parse(str(destination)) == destination


@pytest.mark.parametrize(
    "text",
    [
        *("", "to:", "to:telegram", "to:telegram:", "to::1", "to:telegram:1:2", "to:telegram:%31", "to:telegram@:1"),
        *("control:", "control:to:telegram:1", "control:control:agent:main:telegram:dm:1", "ses_1", "telegram:1"),
    ],
)
def test_a_text_that_no_key_could_have_given_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_key(text)


def test_a_conversation_is_found_from_its_own_key_and_from_that_of_its_control_messages() -> None:
    assert conversation_of(str(CONVERSATION)) == str(CONVERSATION) == conversation_of(str(ControlKey(CONVERSATION)))


@pytest.mark.parametrize("id", ["-100", "a b", "+49", "!r:x", "50%", "ä", "a=b", "x;y,z~_.@"])
def test_an_id_is_spelled_alike_in_keys_destinations_and_owners(id: str) -> None:
    key = SessionKey("main", "x", "", "group", id)
    spelling = str(Destination("x", "", id)).removeprefix("to:x:")
    assert str(key) == f"agent:main:x:group:{spelling}"
    assert owner_of(key, Source("x", id, "group")) == f"x:group:{spelling}"


@pytest.mark.parametrize("chat", ["-100", "a_b", "50%", "a:b"])
def test_the_pattern_for_a_chat_finds_all_its_keys(chat: str) -> None:
    like = re.compile(re.escape(like_keys_in("x", chat)).replace("%", ".*").replace("_", "."))
    for key in (
        SessionKey("main", "x", "", "group", chat),
        SessionKey("b", "x", "bot", "dm", chat, thread="1", scope="s"),
    ):
        assert like.fullmatch(str(key))


def test_no_other_module_looks_at_how_a_key_begins() -> None:
    looks = re.compile(r"""["'](?:agent|to|control):""")
    own = {ROOT / "shared" / name for name in ("lane_key.py", "session_key.py")}
    old = ROOT / "keyturn" / "importing" / "old_keys.py"  # the older gateways' keys, which began alike
    for folder in ("producers", "workers", "shared", "keyturn"):
        for path in (ROOT / folder).rglob("*.py"):
            if path not in own and path != old:
                assert not looks.search(path.read_text()), path


def test_what_stands_in_for_an_unreadable_message_comes_from_the_thread_of_its_key() -> None:
    for key in (CONVERSATION, ControlKey(CONVERSATION)):
        source = stand_in("in_1", str(key)).source
        assert (source.platform, source.account, source.chat, source.thread) == ("telegram", "second", "-100", "17")
