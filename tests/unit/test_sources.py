"""Where messages come from, as values. Tests with an id are rows of the behaviour list, on our types."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from producers.message_body import normalise as normalise_webhook
from producers.telegram.normalise import TelegramMe, normalise
from shared.codec import decode_source, encode_text
from shared.context.compression import last_prompt_tokens
from shared.context.history import window
from shared.context.marks import user_row
from shared.errors import Malformed
from shared.mail import decode_inbound, encode_mail
from shared.messages import Entry, Inbound, Media, Source
from shared.session_key import SessionKey

FULL = Source("slack", "C1", "group", "bot", "U1", "alt", "t1", "T1", "general", "Ann", "plans")


def from_webhook(**chat: Any) -> Inbound:
    return normalise_webhook({"chat": {"id": "c1", **chat}, "user": {"id": "u1"}, "text": "hi"}, "webhook", "evt", 0)


def test_E1_a_full_source_comes_back_with_thread_and_topic() -> None:
    assert decode_source(orjson.loads(encode_text(FULL))) == FULL
    inbound = Inbound("in_1", "e1", FULL, "hi", (Media("https://example.org/a"),))
    assert decode_inbound(encode_mail(inbound)).source == FULL


def test_E2_a_number_as_chat_id_is_text() -> None:
    """Numbers become text at the door; what is stored is text, and anything else there is refused."""
    assert from_webhook(id=99).source.chat == "99"
    with pytest.raises(Malformed):
        decode_source({"platform": "telegram", "chat": 99})


def test_E3_platform_and_chat_are_enough() -> None:
    source = decode_source({"platform": "telegram", "chat": "99"})
    assert source == Source("telegram", "99") and source.chat_type == "dm"
    rest = (source.user, source.user_alt, source.thread, source.scope, source.chat_name, source.user_name, source.topic)
    assert set(rest) == {None}


@pytest.mark.parametrize("platform", ["", "Tele gram", "tele:gram", "../x", "TELEGRAM"])
def test_E4_a_source_of_no_possible_platform_is_refused(platform: str) -> None:
    """Our platforms are an open set; what is no name at all makes no key."""
    with pytest.raises(Malformed):
        SessionKey.for_source(Source(platform, "c1"))


@pytest.mark.parametrize(("topic", "kept"), [("", None), (" \n", None), ("  Cars ", "Cars"), (None, None)])
def test_E6_a_blank_topic_is_none_and_any_other_is_trimmed(topic: str | None, kept: str | None) -> None:
    assert from_webhook(topic=topic).source.topic == kept
    created = {"message_id": 7, "forum_topic_created": {"name": topic}}
    chat = {"id": -100, "type": "supergroup", "title": "Team"}
    message = {"message_id": 8, "chat": chat, "from": {"id": 5}, "text": "hi", "reply_to_message": created}
    found = normalise({"update_id": 1, "message": message}, TelegramMe("99", "bot"), 0)
    assert isinstance(found, Inbound) and found.source.topic == kept


def test_E7_rows_from_before_there_were_counts_count_nothing() -> None:
    old = [Entry("user", "q"), Entry("assistant", "a")]
    assert last_prompt_tokens(old) == 0 == last_prompt_tokens([])
    assert last_prompt_tokens([Entry("assistant", "a", data={"usage": {"prompt": None}})]) == 0


@pytest.mark.parametrize("id", ["../../etc/passwd", "..", "C:\\x", "/leading", "a/b"])
def test_E9_no_id_is_ever_a_path(id: str) -> None:
    """Our ids name no files. A key escapes what a path is made of, and comes back as it was."""
    key = SessionKey.for_source(Source("matrix", id))
    assert "/" not in str(key) and "\\" not in str(key)
    assert SessionKey.parse(str(key)).chat == id
    with pytest.raises(Malformed):
        SessionKey.parse(f"agent:main:matrix:dm:{id}/x")


def test_X7_what_a_user_says_carries_no_reasoning() -> None:
    said = user_row(Inbound("in_1", "e1", FULL, '{"reasoning": "mine"}'))
    assert "reasoning" not in said.data
    thought = Entry("assistant", "a", data={"reasoning": "because"})
    assert window((said, thought))[1].data == {"reasoning": "because"}


def test_X8_the_model_gets_no_system_rows_and_no_empty_ones_and_tool_rows_without_their_time() -> None:
    """A row mirrored into the chat is marked proactive: the mark stays on it."""
    call = {"id": "1", "name": "look", "arguments": "{}"}
    rows = (
        Entry("system", "session_meta"),
        Entry("assistant", "reminder", data={"proactive": True, "at": 1}),
        Entry("user", "look", data={"at": 2}),
        Entry("assistant", "", data={"tool_calls": [call], "at": 3}),
        Entry("tool", "seen", data={"tool_call_id": "1", "name": "look", "at": 4}),
        Entry("assistant", " "),
        Entry("assistant", "done", data={"at": 5}),
    )
    assert window(rows) == (
        Entry("assistant", "reminder", data={"proactive": True}),
        Entry("user", "look"),
        Entry("assistant", "", data={"tool_calls": [call]}),
        Entry("tool", "seen", data={"tool_call_id": "1", "name": "look"}),
        Entry("assistant", "done"),
    )
