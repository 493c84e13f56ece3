"""Session keys: two conversations never share one, and the older gateways' form is given exactly."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keyturn.importing.old_keys import seed_form
from shared.codec import message_id
from shared.errors import Malformed
from shared.lane_key import Destination
from shared.messages import Source
from shared.session_key import ID_LIMIT, TEXT_LIMIT, SessionKey
from shared.settings import Settings
from shared.store.journal import first_session_id


def source(platform: str, chat: str = "", chat_type: str = "dm", **about: Any) -> Source:
    return Source(platform, chat, chat_type, **about)


def key(platform: str, chat: str, chat_type: str = "dm", **about: Any) -> str:
    return str(SessionKey.for_source(source(platform, chat, chat_type, **about)))


# The older gateways' form: the rows of the behaviour table, by their numbers.


def test_K01_a_direct_chat_is_named_by_its_chat_id() -> None:
    assert seed_form(source("telegram", "99")) == "agent:main:telegram:dm:99"


def test_K02_two_direct_chats_have_two_keys() -> None:
    assert seed_form(source("telegram", "99")) == "agent:main:telegram:dm:99"
    assert seed_form(source("telegram", "100")) == "agent:main:telegram:dm:100"


def test_K03_a_thread_in_a_direct_chat_follows_the_chat_and_the_user_is_left_out() -> None:
    assert seed_form(source("telegram", "99", thread="topic-1", user="42")) == "agent:main:telegram:dm:99:topic-1"


def test_K04_a_direct_chat_without_id_is_named_by_its_thread() -> None:
    assert seed_form(source("telegram", thread="7")) == "agent:main:telegram:dm:7"


def test_K05_a_direct_chat_without_any_id_is_the_platform_alone() -> None:
    assert seed_form(source("telegram")) == "agent:main:telegram:dm"


def test_K06_a_direct_chat_without_id_is_named_by_its_user() -> None:
    assert seed_form(source("telegram", user="jordan")) == "agent:main:telegram:dm:jordan"


def test_K07_the_alternative_user_id_wins_and_stands_before_the_thread() -> None:
    assert seed_form(source("telegram", user="primary", user_alt="alt")) == "agent:main:telegram:dm:alt"
    assert seed_form(source("telegram", user="primary", user_alt="alt", thread="7")) == "agent:main:telegram:dm:alt:7"
    assert seed_form(source("telegram", user="jordan", thread="7")) == "agent:main:telegram:dm:jordan:7"


def test_K08_a_group_without_user_is_named_by_its_chat_id() -> None:
    assert seed_form(source("discord", "guild-123", "group")) == "agent:main:discord:group:guild-123"


def test_K09_each_user_of_a_group_has_a_key() -> None:
    assert seed_form(source("discord", "g", "group", user="alice")) == "agent:main:discord:group:g:alice"
    assert seed_form(source("discord", "g", "group", user="bob")) == "agent:main:discord:group:g:bob"


def test_K10_a_shared_group_has_one_key() -> None:
    for user in ("alice", "bob"):
        shared = seed_form(source("discord", "g", "group", user=user), group_per_user=False)
        assert shared == "agent:main:discord:group:g"


def test_K11_the_users_of_a_thread_share_its_key() -> None:
    for user in ("alice", "bob"):
        thread = source("telegram", "-1002285219667", "group", thread="17585", user=user)
        assert seed_form(thread) == "agent:main:telegram:group:-1002285219667:17585"


def test_K12_threads_per_user_append_the_user() -> None:
    thread = source("telegram", "-1002285219667", "group", thread="17585", user="42")
    assert seed_form(thread, thread_per_user=True) == "agent:main:telegram:group:-1002285219667:17585:42"
    shared = seed_form(thread, thread_per_user=True, group_per_user=False)
    assert (
        shared == "agent:main:telegram:group:-1002285219667:17585"
    )  # threads per user are a refinement of groups per user


def test_K13_threads_per_user_count_only_while_groups_are_per_user() -> None:
    keys = {
        (group, thread): str(
            SessionKey.for_source(
                source("telegram", "-100", "group", thread="17", user="42"),
                group_per_user=group,
                thread_per_user=thread,
            )
        )
        for group in (True, False)
        for thread in (True, False)
    }
    shared = "agent:main:telegram:group:-100:t=17"
    assert keys == {
        (True, True): f"{shared}:u=42",
        (True, False): shared,
        (False, True): shared,
        (False, False): shared,
    }


def test_K14_a_chat_that_is_a_thread_is_shared() -> None:
    for user in ("alice", "bob"):
        thread = source("discord", "c1", "thread", thread="t1", user=user)
        assert seed_form(thread) == "agent:main:discord:thread:c1:t1"


def test_K15_the_alternative_user_id_is_used_in_groups() -> None:
    group = source("signal", "g", "group", user="+1555", user_alt="uuid-1")
    assert seed_form(group) == "agent:main:signal:group:g:uuid-1"


def test_K16_ids_are_kept_verbatim() -> None:
    assert seed_form(source("telegram", "-100", "group", user="U/9")) == "agent:main:telegram:group:-100:U/9"
    assert seed_form(source("slack", "C0ABC", "channel")) == "agent:main:slack:channel:C0ABC"
    room = source("matrix", "!room:example.org", "group", user="@ann:example.org")
    assert seed_form(room) == "agent:main:matrix:group:!room:example.org:@ann:example.org"


def test_K17_a_whatsapp_person_is_one_number_under_every_jid() -> None:
    for jid in ("15551234567@s.whatsapp.net", "15551234567:12@s.whatsapp.net", "+15551234567", "15551234567"):
        assert seed_form(source("whatsapp", jid)) == "agent:main:whatsapp:dm:15551234567"


def test_K17_a_whatsapp_alias_maps_to_the_same_key() -> None:
    aliases = {"999999999999999": "15551234567@s.whatsapp.net", "15551234567": "999999999999999@lid"}
    for jid in ("999999999999999@lid", "15551234567@s.whatsapp.net"):
        assert seed_form(source("whatsapp", jid), aliases=aliases) == "agent:main:whatsapp:dm:15551234567"
    assert seed_form(source("whatsapp", "999999999999999@lid")) == "agent:main:whatsapp:dm:999999999999999"


def test_K17_a_whatsapp_group_keeps_its_jid_and_its_members_are_numbers() -> None:
    aliases = {"999999999999999": "15551234567"}
    for jid in ("999999999999999@lid", "15551234567@s.whatsapp.net"):
        group = source("whatsapp", "120363-1@g.us", "group", user=jid)
        assert seed_form(group, aliases=aliases) == "agent:main:whatsapp:group:120363-1@g.us:15551234567"


def test_K18_a_slack_workspace_stands_before_the_chat() -> None:
    assert seed_form(source("slack", "C1", "channel", scope="T1")) == "agent:main:slack:channel:T1:C1"
    assert seed_form(source("slack", "D1", scope="T1", thread="1.2")) == "agent:main:slack:dm:T1:D1:1.2"
    assert seed_form(source("discord", "c", "channel", scope="guild")) == "agent:main:discord:channel:c"


def test_K19_a_group_without_any_id_is_platform_and_type() -> None:
    assert seed_form(source("discord", chat_type="group")) == "agent:main:discord:group"


def test_K20_the_flags_are_those_of_the_settings_and_have_their_defaults() -> None:
    defaults = Settings(_env_file=None)  # type: ignore[call-arg]
    flags: dict[str, Any] = {
        "group_per_user": defaults.group_sessions_per_user,
        "thread_per_user": defaults.thread_sessions_per_user,
    }
    assert flags == {"group_per_user": True, "thread_per_user": False}
    for thread in (None, "t"):
        spoken = source("discord", "g", "group", user="alice", thread=thread)
        assert seed_form(spoken, **flags) == seed_form(spoken)
        assert SessionKey.for_source(spoken, **flags) == SessionKey.for_source(spoken)


@pytest.mark.parametrize(
    ("profile", "namespace"),
    [(None, "main"), ("", "main"), ("default", "main"), ("work", "work"), ("main", "main~")],
)
def test_K21_a_profile_has_a_namespace_of_its_own(profile: str | None, namespace: str) -> None:
    assert seed_form(source("telegram", "99"), profile=profile) == f"agent:{namespace}:telegram:dm:99"


# Our own keys: readable.


@pytest.mark.parametrize(
    ("spoken", "text"),
    [
        (source("telegram", "-100", "group", thread="17", user="5"), "agent:main:telegram:group:-100:t=17"),
        (source("webhook", "c1", user="u1"), "agent:main:webhook:dm:c1"),
        (source("slack", "C1", "group", scope="T1", user="U1"), "agent:main:slack:group:C1:s=T1:u=U1"),
        (source("signal", "g", "group", user="+1", user_alt="uuid"), "agent:main:signal:group:g:a=uuid"),
        (source("telegram", "5", account="bot 2"), "agent:main:telegram@bot%202:dm:5"),
        (source("matrix", "!r:example.org", "channel"), "agent:main:matrix:channel:!r%3Aexample.org"),
    ],
)
def test_a_key_reads_as_the_design_shows_it(spoken: Source, text: str) -> None:
    assert str(SessionKey.for_source(spoken)) == text
    assert SessionKey.parse(text) == SessionKey.for_source(spoken)


# Our own keys: injective.

BORDER = "\N{SYMBOL FOR UNIT SEPARATOR}"  # between the ids of one drawn text; drawing one text is far cheaper than nine
NASTY = [
    BORDER,
    ":",
    "%",
    "=",
    "{",
    "}",
    "\0",
    "/",
    "@",
    "t",
    "u",
    "3A",
    "\N{PILE OF POO}",
    "é",
    "e\u0301",
    " ",
    "\ufffd",
]
DRAWN = st.text(st.one_of(st.sampled_from("".join(NASTY)), st.characters(codec="utf-8")), min_size=1, max_size=40)


def an_identity(drawn: str) -> SessionKey:
    """An identity with any ids in any of its places, chosen by what was drawn."""
    ids: list[str | None] = [id or None for id in drawn.split(BORDER)][:5]
    chat, thread, scope, account, user = (ids[n] if n < len(ids) else None for n in range(5))
    slot = "user" if len(drawn) % 2 else "user_alt"
    chat_type = ("dm", "group", "thread")[len(drawn) % 3]
    return SessionKey("main", "x", account or "", chat_type, chat or "0", scope, thread, **{slot: user})


@settings(max_examples=10_000, deadline=None)
@given(DRAWN)
def test_a_key_is_read_back_as_the_identity_it_was_made_from(drawn: str) -> None:
    """From this it follows that two different identities never give the same text."""
    made = an_identity(drawn)
    assert SessionKey.parse(str(made)) == made
    assert str(made).isascii() and str(made).isprintable() and not set(str(made)) & set(" {}*?[]\\\"'")


@settings(max_examples=2_000, deadline=None)
@given(DRAWN, st.integers(0, 40), st.sampled_from(NASTY))
def test_identities_that_differ_in_anything_have_different_keys(drawn: str, at: int, moved: str) -> None:
    one, other = an_identity(drawn), an_identity(drawn[:at] + moved + drawn[at:])
    exchanged = dataclasses.replace(one, thread=one.scope, scope=one.thread)
    for a, b in itertools.combinations((one, other, exchanged), 2):
        assert (str(a) == str(b)) is (a == b)


@settings(max_examples=2_000, deadline=None)
@given(st.text(max_size=60))
@example("agent:main:telegram:dm:99")
def test_what_parses_is_canonical(text: str) -> None:
    for candidate in (text, f"agent:main:telegram:dm:{text}", f"agent:main:telegram:dm:1:t={text}"):
        try:
            parsed = SessionKey.parse(candidate)
        except Malformed:
            continue
        assert str(parsed) == candidate


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agent",
        "agent:main:telegram:dm",
        "agent:main:telegram:dm:",
        "user:main:telegram:dm:1",
        "agent:Main:telegram:dm:1",
        "agent::telegram:dm:1",
        "agent:main:tele gram:dm:1",
        "agent:main:telegram@:dm:1",
        "agent:main:telegram:DM:1",
        "agent:main:telegram:dm:1:2",
        "agent:main:telegram:dm:1:t=",
        "agent:main:telegram:dm:1:x=2",
        "agent:main:telegram:dm:1:t=2:t=3",
        "agent:main:telegram:dm:1:t=2:s=3",
        "agent:main:telegram:group:1:u=2:a=3",
        "agent:main:telegram:dm:%31",
        "agent:main:telegram:dm:%3a",
        "agent:main:telegram:dm:%",
        "agent:main:telegram:dm:%FF",
        "agent:main:telegram:dm:%ED%A0%80",
        "agent:main:telegram:dm:é",
        "agent:main:telegram:dm:1\n",
        "agent:main:telegram:dm:" + "a" * (ID_LIMIT + 1),
    ],
)
def test_a_text_that_no_key_could_have_given_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        SessionKey.parse(text)


@pytest.mark.parametrize(
    "spoken",
    [
        source("telegram"),
        source("telegram", user="jordan"),
        source("telegram", thread="7"),
        source("telegram", "", "group", user="u"),
        source("telegram", "-100", "group"),
        source("telegram", "-100", "other", user=""),
    ],
)
def test_a_source_without_the_ids_it_needs_is_refused_instead_of_pooled(spoken: Source) -> None:
    with pytest.raises(Malformed):
        SessionKey.for_source(spoken)


def test_a_thread_per_user_needs_its_user() -> None:
    spoken = source("telegram", "-100", "group", thread="17")
    assert str(SessionKey.for_source(spoken)) == "agent:main:telegram:group:-100:t=17"
    with pytest.raises(Malformed):
        SessionKey.for_source(spoken, thread_per_user=True)


@pytest.mark.parametrize("id", ["a" * (ID_LIMIT + 1), "é" * (ID_LIMIT // 2 + 1), "\ud800"])
def test_an_id_that_no_store_keeps_as_it_is_is_refused(id: str) -> None:
    with pytest.raises(Malformed):
        key("telegram", id)


def test_a_key_is_never_longer_than_a_database_can_index() -> None:
    longest = "\N{PILE OF POO}" * (ID_LIMIT // 4)
    assert len(key("telegram", longest)) < TEXT_LIMIT
    with pytest.raises(Malformed):
        key("telegram", longest, "group", thread=longest, scope=longest)


# The ways in which the older gateways' keys let two conversations share a history.


def test_collision_K1_a_delimiter_in_an_id_does_not_move_the_border_between_ids() -> None:
    assert key("x", "a:b", "group", thread="c") != key("x", "a", "group", thread="b:c")
    assert key("x", "a:b") != key("x", "a", thread="b")
    assert key("x", "a:t=b") != key("x", "a", thread="b")
    assert key("x", "a%3At=b") != key("x", "a:t=b")


def test_collision_K2_a_thread_and_a_user_of_the_same_number_are_two_things() -> None:
    assert key("telegram", "-100", "group", thread="42", user="1") != key("telegram", "-100", "group", user="42")
    assert key("slack", "C1", scope="t") != key("slack", "C1", thread="t")


def test_collision_K3_missing_ids_pool_nobody() -> None:
    with pytest.raises(Malformed):
        key("telegram", "", thread="5")
    with pytest.raises(Malformed):
        key("telegram", "")


def test_collision_K4_an_alternative_id_is_not_another_users_id() -> None:
    assert key("signal", "g", "group", user="X") != key("signal", "g", "group", user="other", user_alt="X")


def test_collision_K5_bots_workspaces_and_agents_are_part_of_the_key() -> None:
    assert len({key("slack", "C1", account=account) for account in ("", "one", "two")}) == 3
    assert len({key("slack", "C1", scope=scope) for scope in (None, "T1", "T2")}) == 3
    spoken = source("slack", "C1")
    assert len({str(SessionKey.for_source(spoken, agent=agent)) for agent in ("main", "main~", "work")}) == 3
    assert len({message_id("slack", account, "e1") for account in ("", "one", "two")}) == 3
    assert len({str(Destination("slack", account, "C1")) for account in ("", "one", "two")}) == 3


def test_collision_K6_no_name_made_from_a_key_loses_what_tells_it_apart() -> None:
    pairs = [(("telegram", "a_b"), ("telegram_a", "b")), (("tg", "1/2"), ("tg", "1?2")), (("tg", "a:b"), ("tg", "a-b"))]
    for one, other in pairs:
        assert key(*one) != key(*other)
        assert first_session_id(key(*one)) != first_session_id(key(*other))
        assert str(Destination(one[0], "", one[1])) != str(Destination(other[0], "", other[1]))


def test_collision_K7_ids_are_compared_as_they_are_and_empty_means_absent() -> None:
    spellings = ["Ann", "ann", "ann ", " ann", "\u00e9", "e\u0301", "\uff41nn", "0", "00"]
    assert len({key("irc", id) for id in spellings}) == len(spellings)
    assert key("irc", "c", thread="") == key("irc", "c", thread=None)
    for slot in ("chat", "scope", "thread", "user", "user_alt"):
        with pytest.raises(Malformed):
            SessionKey(**{"agent": "main", "platform": "irc", "account": "", "chat_type": "dm", "chat": "c", slot: ""})


def test_collision_K8_a_changed_policy_never_leads_into_another_users_history() -> None:
    per_user = {key("telegram", "-100", "group", user=user) for user in ("1", "2")}
    shared = {
        str(SessionKey.for_source(source("telegram", "-100", "group", user=user), group_per_user=False))
        for user in ("1", "2")
    }
    assert (len(per_user), len(shared), per_user & shared) == (2, 1, set())


def test_collision_K9_a_session_id_or_a_title_is_not_a_key() -> None:
    for text in (
        first_session_id(key("telegram", "99")),
        "my holiday plans",
        seed_form(source("telegram", thread="7")) + ":",
    ):
        with pytest.raises(Malformed):
            SessionKey.parse(text)


async def test_collision_K10_a_key_follows_from_its_source_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ambient: contextvars.ContextVar[str] = contextvars.ContextVar("chat")

    async def one(chat: str) -> tuple[str, str]:
        ambient.set(chat)
        spoken = source("telegram", chat)
        await asyncio.sleep(0)
        return chat, str(SessionKey.for_source(spoken))

    monkeypatch.setenv("KEYTURN_SESSION_KEY", "agent:main:telegram:dm:0")
    for chat, made in await asyncio.gather(*(one(str(n)) for n in range(100))):
        assert made == f"agent:main:telegram:dm:{chat}"


def test_no_two_conversations_of_an_adversarial_grid_share_a_key() -> None:
    values = [None, "", "a", "b", "a:b", "b:c", "a:", "::"]
    found: dict[str, tuple[object, ...]] = {}
    seeds: dict[str, set[tuple[object, ...]]] = {}
    for chat_type, (chat, thread, user) in itertools.product(
        ("dm", "group", "channel", "thread"), itertools.product(values, repeat=3)
    ):
        spoken = source("x", chat or "", chat_type, thread=thread, user=user)
        try:
            made = SessionKey.for_source(spoken)
        except Malformed:
            continue
        identity = (made.chat_type, made.chat, made.thread, made.user)
        assert found.setdefault(str(made), identity) == identity
        seeds.setdefault(seed_form(spoken), set()).add(identity)
    assert len(found) == 264
    assert any(len(shared) > 1 for shared in seeds.values())  # the older form does share: that is why ours exists
