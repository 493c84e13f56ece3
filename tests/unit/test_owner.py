"""Whose a session is: the same person from everywhere, never another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.messages import Source
from shared.owner import owner_of
from shared.session_key import SessionKey

IDS = st.text(min_size=1, max_size=8)


def owner(**about: str) -> str | None:
    source = Source(platform="telegram", **about)
    return owner_of(SessionKey.for_source(source), source)


def test_a_person_is_the_same_in_every_chat_of_his_own() -> None:
    assert owner(chat="42", user="42") == "telegram:u=42"
    assert owner(chat="-100", chat_type="group", user="42") == "telegram:u=42"
    assert owner(chat="42", user="42", thread="7") == "telegram:u=42"


def test_accounts_workspaces_and_kinds_of_ids_are_kept_apart() -> None:
    places: list[dict[str, str]] = [{}, {"account": "b"}, {"scope": "T1"}]
    found = {owner(chat="1", user="42", **place) for place in places} | {owner(chat="1", user="1", user_alt="42")}
    assert len(found) == 4


def test_a_shared_thread_belongs_to_the_thread_and_a_channel_to_the_channel() -> None:
    assert owner(chat="-100", chat_type="thread", user="42", thread="17") == "telegram:thread:-100:t=17"
    assert owner(chat="-5", chat_type="channel") == "telegram:channel:-5"


def test_W13_without_identity_nobody_owns_a_conversation() -> None:
    assert owner(chat="42") is None


@given(IDS, IDS, IDS, IDS)
def test_two_owners_never_share_one_name(user: str, other: str, chat: str, thread: str) -> None:
    sources: list[dict[str, str]] = [
        {"chat": chat, "user": user},
        {"chat": chat, "user": other},
        {"chat": chat, "chat_type": "channel"},
        {"chat": chat, "chat_type": "thread", "thread": thread, "user": user},
    ]
    names = [owner(**about) for about in sources]
    assert len(set(names)) == (3 if user == other else 4)
