"""Ids of people do not reach prompts and logs where nobody needs them."""

from __future__ import annotations

import re

import pytest

from shared.context.prompt import Home, Surroundings, context_prompt
from shared.context.redact import Redaction
from shared.lane_key import Destination
from shared.messages import Source
from shared.platforms import HIDE_IDS
from shared.session_key import SessionKey

PHONE = "+4915112345678"
HIDDEN = Redaction(b"k" * 32)
USER = re.compile(r"user_[0-9a-f]{12}\b")


def prompt_of(platform: str, redaction: Redaction | None = HIDDEN, user: str = PHONE, **source: str) -> str:
    place = Source(**{"platform": platform, "chat": user, "user": user, **source})
    around = Surroundings((platform,), (Home(platform, user, "Home"),), redaction=redaction)
    return context_prompt(place, SessionKey.for_source(place), around)


@pytest.mark.parametrize("platform", ["telegram", "whatsapp", "signal"])
def test_C10_an_id_is_shown_as_a_keyed_hash(platform: str) -> None:
    shown = prompt_of(platform)
    assert PHONE not in shown and PHONE[1:] not in shown
    assert USER.search(shown) and shown == prompt_of(platform)
    other = prompt_of(platform, user="+4915112345679")
    assert set(USER.findall(shown)).isdisjoint(USER.findall(other))
    assert set(USER.findall(shown)).isdisjoint(USER.findall(prompt_of(platform, Redaction(b"l" * 32))))


def test_C11_a_name_is_shown_and_the_id_is_not() -> None:
    shown = prompt_of("signal", user_name="Ann")
    assert '"Ann"' in shown and PHONE not in shown and not USER.search(shown)


@pytest.mark.parametrize("platform", ["discord", "slack"])
def test_C13_where_mentions_need_it_the_id_stays(platform: str) -> None:
    assert '"U123"' in prompt_of(platform, user="U123")
    assert platform not in HIDE_IDS


def test_C14_without_redaction_ids_stay() -> None:
    assert f'"{PHONE}"' in prompt_of("signal", None)


def test_a_chat_keeps_its_prefix_and_a_thread_is_left_out() -> None:
    shown = HIDDEN.chat("signal", "group:c2VjcmV0")
    assert re.fullmatch(r"group:chat_[0-9a-f]{12}", shown)
    assert "secret-thread" not in prompt_of("telegram", chat_type="group", thread="secret-thread")


def test_a_session_key_in_a_log_line_tells_keys_apart_and_nothing_else() -> None:
    keys = [str(SessionKey.for_source(Source("signal", f"{PHONE}{n}", user=f"{PHONE}{n}"))) for n in range(2)]
    shown = [HIDDEN.session_key(key) for key in keys]
    assert shown[0] != shown[1] and all(SessionKey.parse(key).platform == "signal" for key in shown)
    assert not any(PHONE in key or PHONE[1:] in key for key in shown)
    group = SessionKey.for_source(Source("whatsapp", "123@g.us", "group", user=PHONE, thread="7"))
    assert PHONE[1:] not in HIDDEN.session_key(str(group)) and "t=7" in HIDDEN.session_key(str(group))
    slack = str(SessionKey.for_source(Source("slack", "C1", "group", user="U1")))
    assert HIDDEN.session_key(slack) == slack


def test_a_log_line_holds_no_phone_number_in_any_field() -> None:
    key = str(SessionKey.for_source(Source("signal", PHONE, user=PHONE)))
    event = {
        "event": f"could not send to {PHONE}.",
        "key": key,
        "destination": str(Destination("whatsapp", "", PHONE)),
        "error": "4915112345678@s.whatsapp.net has left",
        "ms": 4915112345678,
        "timestamp": "2026-11-16T10:00:00Z",
        "turn": "turn_0123456789abcdef",
    }
    shown = HIDDEN.log_event(event)
    assert not any(PHONE[1:] in value for value in shown.values() if isinstance(value, str))
    assert (shown["timestamp"], shown["turn"], shown["ms"]) == (event["timestamp"], event["turn"], event["ms"])
    assert HIDDEN.log_event({"key": "to:slack:C1"}) == {"key": "to:slack:C1"}


def test_a_destination_in_the_midst_of_a_text_is_hidden_where_its_platform_hides_ids() -> None:
    telegram = f"to:telegram:{HIDDEN.chat('telegram', '-1001500')}"
    assert HIDDEN.text("gave up on to:telegram:-1001500, later.") == f"gave up on {telegram}, later."
    for kept in ("gave up on to:slack:C1500.", "gave up on to:nowhere", "to:"):
        assert HIDDEN.text(kept) == kept


def test_an_id_has_one_hash_wherever_it_is_shown() -> None:
    assert HIDDEN.text(f"call {PHONE} now") == f"call {HIDDEN.user('signal', PHONE)} now"


def test_a_guessable_key_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Redaction(b"short")


def test_a_destination_that_cannot_be_read_is_hidden_whole() -> None:
    assert re.fullmatch(r"lost to:hidden_[0-9a-f]{12} here", HIDDEN.text("lost to:telegram:15:00 here"))


def test_a_chat_has_one_hash_in_its_session_key_and_in_its_destination() -> None:
    chat, hidden = "group:c2VjcmV0", HIDDEN.chat("signal", "group:c2VjcmV0").replace(":", "%3A")
    assert HIDDEN.text(str(Destination("signal", "", chat))) == f"to:signal:{hidden}"
    assert HIDDEN.text(str(SessionKey("main", "signal", "", "group", chat))) == f"agent:main:signal:group:{hidden}"
