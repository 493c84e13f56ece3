"""A hermes home is read whole, and nothing in it is believed blindly."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from keyturn.importing.conversation import OldConversation, Skipped, Used
from keyturn.importing.hermes.home import HermesHome
from shared.context import marks
from shared.context.memory import NOTE_LIMIT
from shared.errors import Malformed
from shared.owner import owner_of
from shared.routing import Sharing
from tests.support.legal import is_legal
from tests.support.older import AT, Hermes, origin, said


def read(home: Path, sharing: Sharing | None = None) -> tuple[dict[str, OldConversation], dict[str, str]]:
    """What comes along, and what does not and why."""
    reader = HermesHome(home, sharing or Sharing())
    found = list(reader)
    reader.close()
    assert len(found) == reader.total
    brought = {one.ref: one for one in found if isinstance(one, OldConversation)}
    return brought, {one.ref: one.reason for one in found if isinstance(one, Skipped)}


def texts(one: OldConversation) -> list[str]:
    return [row.entry.text for row in one.rows]


@pytest.fixture
def hermes(tmp_path: Path) -> Hermes:
    return Hermes(tmp_path / "home")


def test_X3_the_longer_of_the_two_stores_is_taken_and_of_two_equal_ones_the_database(hermes: Hermes) -> None:
    for chat, session_id, stored, written in ((1, "file", 3, 50), (2, "base", 3, 2), (3, "equal", 3, 3)):
        hermes.talk(chat, session_id, *(f"stored {n}" for n in range(stored)))
        hermes.lines(session_id, said(*(f"written {n}" for n in range(written))))
    brought, _ = read(hermes.write_index())
    assert {ref: (len(one.rows), texts(one)[0]) for ref, one in brought.items()} == {
        "file": (50, "written 0"),
        "base": (3, "stored 0"),
        "equal": (3, "stored 0"),
    }


def test_X4_a_corrupt_line_is_left_out_and_counted_and_the_rest_is_kept(hermes: Hermes) -> None:
    hermes.entry("agent:main:telegram:dm:1", "s", origin(1))
    a, b, c = said("a", "b", "c")
    hermes.lines(
        "s", [a, '{"role": "assist', b, "", "[]", "\x00\xff", c, '{"role": "nobody"}', '{"role": "user", "con']
    )
    brought, _ = read(hermes.write_index())
    assert (texts(brought["s"]), brought["s"].corrupt) == (["a", "b", "c"], 5)


def test_X5_what_was_appended_to_the_file_alone_comes_once(hermes: Hermes) -> None:
    """The two stores are never added up: the doubling and tripling of rows cannot happen."""
    hermes.talk(1, "s", "a", "b")
    hermes.lines("s", said("a", "b", "only in the file"))
    brought, _ = read(hermes.write_index())
    assert texts(brought["s"]) == ["a", "b", "only in the file"]


def test_E4_an_unknown_platform_costs_its_entry_and_no_other(hermes: Hermes) -> None:
    hermes.talk(1, "s", "a")
    hermes.entry("agent:main:fax:dm:2", "f", origin(2, platform="fax"))
    hermes.session("f", said("a"), source="fax")
    brought, skipped = read(hermes.write_index())
    assert list(brought) == ["s"]
    assert skipped == {"agent:main:fax:dm:2": "unknown platform 'fax'"}


def test_E5_an_unknown_platform_beside_a_good_origin_is_no_matter(hermes: Hermes) -> None:
    hermes.entry("agent:main:telegram:dm:1", "s", origin(1), platform="fax")
    hermes.session("s", said("a"))
    brought, skipped = read(hermes.write_index())
    assert (list(brought), skipped) == (["s"], {})


def test_a_key_becomes_the_one_that_the_next_message_has(hermes: Hermes) -> None:
    places = {
        "dm": ("agent:main:telegram:dm:1", origin(1)),
        "topic": ("agent:main:telegram:dm:1:5", origin(1, thread_id=5)),
        "group": ("agent:main:telegram:group:-9:11", origin(-9, chat_type="group")),
        "thread": ("agent:main:telegram:group:-9:17", origin(-9, chat_type="group", thread_id=17)),
        "named": ("agent:ops:telegram:dm:4", origin(4, profile="ops")),
        "bare": ("agent:main:telegram:dm:6", None),
    }
    for ref, (old_key, source) in places.items():
        hermes.entry(old_key, ref, source)
        hermes.session(ref, said("a"))
    brought, _ = read(hermes.write_index())
    assert {ref: str(one.key) for ref, one in brought.items()} == {
        "dm": "agent:main:telegram:dm:1",
        "topic": "agent:main:telegram:dm:1:t=5",
        "group": "agent:main:telegram:group:-9:u=11",
        "thread": "agent:main:telegram:group:-9:t=17",
        "named": "agent:ops:telegram:dm:4",
        "bare": "agent:main:telegram:dm:6",
    }
    assert [one.place.note for one in brought.values()] == [None] * len(places)


def test_what_a_group_shared_does_not_become_one_persons(hermes: Hermes) -> None:
    hermes.entry("agent:main:telegram:group:-9", "s", origin(-9, chat_type="group"))
    hermes.session("s", said("a"))
    home = hermes.write_index()
    brought, _ = read(home)
    assert str(brought["s"].key) == "agent:main:telegram:group:-9"
    assert brought["s"].place.note == "it goes on only with telegram:-9 in SHARED_CHATS"
    for sharing in (Sharing(group_per_user=False), Sharing(shared_chats=("telegram:-9",))):
        assert read(home, sharing)[0]["s"].place.note is None


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("thread", [True, False])
def test_a_shared_topic_stays_shared_whatever_the_settings_here(hermes: Hermes, group: bool, thread: bool) -> None:
    hermes.entry("agent:main:telegram:group:-9:77", "s", origin(-9, chat_type="group", thread_id=77))
    hermes.session("s", said("a"))
    brought, _ = read(hermes.write_index(), Sharing(group_per_user=group, thread_per_user=thread))
    assert str(brought["s"].key) == "agent:main:telegram:group:-9:t=77"


@pytest.mark.parametrize(
    ("old_key", "source", "reason"),
    [
        ("agent:main:telegram:dm", origin(11), "names no chat"),
        ("agent:main:telegram:group", origin(-9, chat_type="group"), "names no chat"),
        ("agent:main:telegram:group:-9", origin(-9, chat_type="group", thread_id=77), "names no thread"),
        ("agent:main:telegram:group:-9:11", origin(-9, chat_type="group", thread_id=77), "names no thread"),
        ("agent:main:telegram:dm:11", origin(11, thread_id=5), "names no thread"),
        ("agent:main:telegram:dm:12", origin(11), "different chats"),
    ],
)
def test_what_a_key_held_for_many_is_never_given_to_one(
    hermes: Hermes, old_key: str, source: dict[str, Any], reason: str
) -> None:
    """Old versions kept all private chats of a platform under one key. Its origin is only the first who wrote."""
    hermes.entry(old_key, "s", source)
    hermes.session("s", said("mine", "yes", "another person's"))
    brought, skipped = read(hermes.write_index())
    assert brought == {} and reason in skipped["s"]


def test_ids_that_hermes_wrote_in_another_form_name_the_same_chat(hermes: Hermes) -> None:
    mapping = hermes.home / "whatsapp" / "session"
    mapping.mkdir(parents=True)
    (mapping / "lid-mapping-9990001.json").write_text('"49170"')
    places = {
        "number": ("agent:main:whatsapp:dm:4915551234", origin("4915551234:3@s.whatsapp.net", "whatsapp")),
        "alias": ("agent:main:whatsapp:dm:49170", origin("9990001@lid", "whatsapp")),
        "as it was": ("agent:main:whatsapp:dm:1@s.whatsapp.net", origin("1@s.whatsapp.net", "whatsapp")),
        "workspace": ("agent:main:slack:group:C1:11", origin("C1", "slack", chat_type="group", guild_id="T1")),
        "forum": ("agent:main:telegram:forum:-9:7", origin(-9, chat_type="forum", thread_id=7)),
        "no chat id": ("agent:main:telegram:dm:11", origin("", user_id="11")),
        "api": ("agent:main:api_server:dm:c1", origin("c1", "api_server")),
        "terminal": ("agent:main:local:dm:cli", origin("cli", "local", user_id=None)),
    }
    for ref, (old_key, source) in places.items():
        hermes.entry(old_key, ref, source)
        hermes.session(ref, said("a"))
    brought, skipped = read(hermes.write_index())
    assert skipped == {}
    assert {ref: str(one.key) for ref, one in brought.items()} == {
        "number": "agent:main:whatsapp:dm:4915551234%3A3@s.whatsapp.net",
        "alias": "agent:main:whatsapp:dm:9990001@lid",
        "as it was": "agent:main:whatsapp:dm:1@s.whatsapp.net",
        "workspace": "agent:main:slack:group:C1:s=T1:u=11",
        "forum": "agent:main:telegram:other:-9:t=7",
        "no chat id": "agent:main:telegram:dm:11",
        "api": "agent:main:api:dm:c1",
        "terminal": "agent:main:local:dm:terminal",
    }


def test_the_sender_before_a_text_that_several_share_becomes_the_sender(hermes: Hermes) -> None:
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "[Ann [work]] hello"},
        {"role": "assistant", "content": "[Ann] is no sender here"},
        {"role": "user", "content": '[Replying to: "hello"]\n\n[Bob] and [that] too'},
        {"role": "user", "content": '\x00json:[{"type": "text", "text": "[Bob] see"}, {"type": "image_url"}]'},
        {"role": "user", "content": "[Cid|42]\nnot to the bot"},
        {"role": "user", "content": "no sender"},
    ]
    hermes.entry("agent:main:telegram:group:-9:77", "topic", origin(-9, chat_type="group", thread_id=77))
    hermes.session("topic", rows)
    hermes.talk(11, "alone", "[todo] buy milk")
    brought, _ = read(hermes.write_index())
    told = [(row.entry.data.get(marks.SENDER), row.entry.text) for row in brought["topic"].rows]
    assert told == [
        ("Ann [work]", "hello"),
        (None, "[Ann] is no sender here"),
        ("Bob", '[Replying to: "hello"]\n\nand [that] too'),
        ("Bob", "see\n[image]"),
        ("Cid", "not to the bot"),
        (None, "no sender"),
    ]
    assert brought["topic"].rows[4].entry.data[marks.SENDER_ID] == "42"
    assert brought["topic"].rows[3].entry.data[marks.BLOCKS][0] == {"type": "text", "text": "see"}
    assert texts(brought["alone"]) == ["[todo] buy milk"]  # in private, brackets are a person's own words


def test_a_key_that_can_be_read_in_two_ways_is_not_guessed(hermes: Hermes) -> None:
    hermes.entry("agent:main:telegram:group:-9:17", "s", None)
    hermes.session("s", said("a"))
    _, skipped = read(hermes.write_index())
    assert "two ways" in skipped["s"]


def test_tool_calls_reasoning_and_superseded_rows_come_along(hermes: Hermes) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    thought = [{"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}]
    picture = [{"type": "text", "text": "here"}, {"type": "image_url", "image_url": "data:x"}]
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "undone", "active": 0},
        {"role": "user", "content": "look", "reasoning": "users do not reason"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": json.dumps([call]),
            "reasoning": "hm",
            "reasoning_details": json.dumps([*thought, {"type": "reasoning.encrypted", "data": "x"}]),
        },
        {"role": "tool", "content": "found", "tool_call_id": "c1", "tool_name": "look"},
        {
            "role": "assistant",
            "content": f"\x00json:{json.dumps(picture)}",
        },
    ]
    hermes.entry("agent:main:telegram:dm:1", "s", origin(1))
    hermes.session("s", rows)
    one = read(hermes.write_index())[0]["s"]
    assert [row.active for row in one.rows] == [False, True, True, True, True]
    entries = [row.entry for row in one.rows if row.active]
    assert marks.REASONING not in entries[0].data
    assert entries[1].data[marks.TOOL_CALLS] == [{"id": "c1", "name": "look", "arguments": '{"at": 1}'}]
    assert entries[1].data[marks.REASONING] == "hm"
    assert (entries[2].data[marks.TOOL_CALL_ID], entries[2].data[marks.NAME]) == ("c1", "look")
    assert entries[1].data[marks.THINKING] == thought
    assert entries[3].data[marks.BLOCKS] == picture
    assert entries[3].text == "here\n[image]" and is_legal(entries)
    assert [row.at for row in one.rows] == [int(AT + n) * 1000 for n in range(5)]


def test_values_nested_too_deep_to_be_kept_cost_no_more_than_themselves(hermes: Hermes) -> None:
    deep = f"{'[' * 300}1{']' * 300}"
    stored = [
        {"role": "user", "content": f'\x00json:[{{"type": "text", "text": "hello", "more": {deep}}}]'},
        {"role": "assistant", "content": "so", "reasoning_details": f'[{{"signature": "s", "more": {deep}}}]'},
    ]
    hermes.entry("agent:main:telegram:dm:1", "s", origin(1))
    hermes.session("s", stored)
    hermes.entry("agent:main:telegram:dm:2", "t", origin(2))
    lines = [{"role": "user", "content": [{"type": "text", "text": "hi", "more": json.loads(deep)}]}, *said("after")]
    (hermes.sessions / "t.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found, skipped = read(hermes.write_index())
    assert (texts(found["s"]), texts(found["t"]), skipped) == (["hello", "so"], ["hi", "after"], {})
    for one in found.values():
        assert one.turn_id(len(one.rows))  # every row can be written


def test_earlier_sessions_of_a_chat_come_along_with_title_and_parent(hermes: Hermes) -> None:
    hermes.session("first", said("long ago"), title="Plans", ended_at=AT + 5, end_reason="compression")
    hermes.talk(1, "second", "now", parent_session_id="first", title="Plans #2")
    hermes.session("job", said("x"), source="cron")
    brought, skipped = read(hermes.write_index())
    first, second = brought["first"], brought["second"]
    assert (second.parent, second.is_current, second.title, second.ended_at) == ("first", True, "Plans #2", None)
    assert (first.key, first.is_current, first.title, first.end_reason) == (second.key, False, "Plans", "compression")
    assert skipped == {"job": "nothing says in which chat it was held (cron)"}


def test_a_session_that_left_the_index_comes_along_by_who_wrote_it(hermes: Hermes) -> None:
    """By /new, a reset or /resume. Older databases keep the platform and the user of it, not the chat."""
    hermes.talk(11, "now", "a")
    hermes.entry("agent:main:discord:dm:57", "direct", origin("57", "discord", user_id="d0"))
    hermes.session("direct", said("a"), source="discord")
    ended = {"ended_at": AT + 9, "api_call_count": 1}
    hermes.session("ended", said("b"), user_id="11", title="Old plans", end_reason="session_reset", **ended)
    hermes.session("of another", said("b"), user_id="12", api_call_count=1)
    hermes.session("there", said("b"), source="discord", user_id="d0", **ended)
    hermes.session("somewhere", said("b"), source="discord", user_id="d1", **ended)
    hermes.session("compressed", said("b"), user_id="11", end_reason="compression", **ended)
    hermes.session("went on", said("c"), parent_session_id="compressed")
    hermes.session("shared", said("[Ann] b", "yes", "[Bob] c"), user_id="11", **ended)
    hermes.session("everybody's", said("b", "yes", "of 12"), user_id="11")
    hermes.session("helper", said("do this"), user_id="11", parent_session_id="now")
    hermes.session("typed", said("x"), source="cli")
    hermes.session("api-1", said("x"), source="api_server")
    brought, skipped = read(hermes.write_index())
    assert {ref: (str(one.key), one.is_current) for ref, one in brought.items()} == {
        "now": ("agent:main:telegram:dm:11", True),
        "direct": ("agent:main:discord:dm:57", True),
        "ended": ("agent:main:telegram:dm:11", False),
        "of another": ("agent:main:telegram:dm:12", False),
        "there": ("agent:main:discord:dm:57", False),
        "compressed": ("agent:main:telegram:dm:11", False),
        "went on": ("agent:main:telegram:dm:11", False),
        "typed": ("agent:main:local:dm:terminal", False),
        "api-1": ("agent:main:api:dm:api-1", True),
    }
    assert skipped == {
        "somewhere": "nothing says in which chat it was held (discord)",
        "shared": "several people may have shared it, and nothing says in which chat",
        "everybody's": "it is of a version that did not say who of several people wrote, and nothing says in which chat",
        "helper": "it is a helper's work for another session, not a conversation",
    }
    one = brought["ended"]
    assert (one.title, one.end_reason, one.ended_at) == ("Old plans", "session_reset", int(AT + 9) * 1000)
    assert brought["of another"].ended_at == int(AT) * 1000  # it is over, though nobody said so
    assert owner_of(one.key, one.source) == "telegram:u=11"


def test_what_a_session_has_cost_comes_along_by_model(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path / "home", newer=True)
    hermes.talk(
        1, "old", "a", model="m", input_tokens=100, output_tokens=20, cache_read_tokens=30, cache_write_tokens=5
    )
    hermes.talk(2, "new", "a", model="m", input_tokens=999)
    hermes.spent("new", "m", task="title", api_call_count=1, input_tokens=1, output_tokens=1)
    costs = {"estimated_cost_usd": 0.5, "cost_status": "estimated"}
    hermes.spent("new", "m", api_call_count=2, input_tokens=10, output_tokens=5, **costs)
    hermes.spent("new", "n", api_call_count=1, input_tokens=7, output_tokens=2, actual_cost_usd=0.25)
    hermes.talk(3, "free", "a")
    hermes.index["agent:main:telegram:dm:2"]["last_prompt_tokens"] = 77
    brought, _ = read(hermes.write_index())
    day = "2026-01-01"
    assert brought["old"].used == (Used("m", day, 1, 135, 20, 30, 5),)
    assert brought["new"].used == (
        Used("m", day, 3, 11, 6, cost_usd=Decimal("0.5")),
        Used("n", day, 1, 7, 2, cost_usd=Decimal("0.25"), last_prompt=77),
    )
    assert brought["free"].used == ()


def test_memory_files_are_notes_that_fit(hermes: Hermes) -> None:
    hermes.talk(1, "s", "a")
    hermes.remember("MEMORY.md", "The server\nis called heron.", "word " * 100)
    hermes.remember("USER.md", "Prefers short answers.")
    notes = HermesHome(hermes.write_index(), Sharing()).memory()
    assert notes[:2] == ("Prefers short answers.", "The server is called heron.")
    assert " ".join(notes[2:]) == " ".join(["word"] * 100) and max(map(len, notes)) <= NOTE_LIMIT


def test_a_title_is_not_what_the_model_thought_of_it(hermes: Hermes) -> None:
    titles = {
        "<think>hm</think> Trip to Rome": "Trip to Rome",
        "hm, a title</thinking>Trip": "Trip",
        "<thought>no end": None,
        "How <think> works": "How <think> works",
    }
    for n, title in enumerate(titles):
        hermes.talk(n + 1, f"s{n}", "a", title=title)
    brought, _ = read(hermes.write_index())
    assert {title: brought[f"s{n}"].title for n, title in enumerate(titles)} == titles


def test_two_keys_of_one_session_bring_it_once(hermes: Hermes) -> None:
    hermes.talk(1, "s", "a")
    hermes.entry("agent:main:telegram:dm:2", "s", origin(2), updated_at="2025-01-01T00:00:00+00:00")
    brought, skipped = read(hermes.write_index())
    assert [str(one.key) for one in brought.values()] == ["agent:main:telegram:dm:1"]
    assert skipped == {"agent:main:telegram:dm:2": "it talks to the session of agent:main:telegram:dm:1, which has it"}


def test_a_file_that_no_index_names_is_reported(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path / "home", database=False)
    hermes.entry("agent:main:telegram:dm:1", "s", origin(1))
    for session_id in ("s", "gone"):
        hermes.lines(session_id, said("a"))
    _, skipped = read(hermes.write_index())
    assert list(skipped) == ["gone.jsonl"] and "no index names" in skipped["gone.jsonl"]


def test_a_newer_home_keeps_its_index_in_the_database(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path / "home", newer=True)
    hermes.talk(1, "old", "a", api_call_count=1)
    hermes.session("new", said("b"), session_key="agent:main:telegram:dm:1", origin_json=json.dumps(origin(1)))
    hermes.session("other", said("c"), chat_id="2", chat_type="dm", user_id="2")
    assert hermes.database is not None
    hermes.database.execute(
        "CREATE TABLE gateway_routing (scope TEXT, session_key TEXT, entry_json TEXT, updated_at REAL)"
    )
    entry = json.dumps({"session_id": "new", "origin": origin(1)})
    hermes.database.execute("INSERT INTO gateway_routing VALUES ('', 'agent:main:telegram:dm:1', ?, 1)", [entry])
    brought, skipped = read(hermes.write_index())
    assert {ref: one.is_current for ref, one in brought.items()} == {"new": True, "other": False, "old": False}
    assert str(brought["other"].key) == "agent:main:telegram:dm:2"
    assert skipped == {}


def test_a_home_without_a_database_is_its_files(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path / "home", database=False)
    hermes.entry("agent:main:telegram:dm:1", "s", origin(1))
    hermes.lines("s", said("a", "b"))
    hermes.entry("agent:main:telegram:dm:2", "gone", origin(2))
    hermes.entry("agent:main:telegram:dm:3", "../../secret", origin(3))
    brought, skipped = read(hermes.write_index())
    assert texts(brought["s"]) == ["a", "b"]
    assert skipped == {"gone": "it is empty", "../../secret": "it is empty"}


def test_half_a_home_does_not_pass_for_a_whole_one(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="no hermes home"):
        HermesHome(tmp_path, Sharing())
    (tmp_path / "state.db").write_bytes(b"this is no database, though it is where one should be" * 100)
    with pytest.raises(Malformed, match="cannot be read"):
        HermesHome(tmp_path, Sharing())


def test_an_index_that_cannot_be_read_is_reported(hermes: Hermes) -> None:
    hermes.session("s", said("a"))
    home = hermes.write_index()
    (home / "sessions/sessions.json").write_text('{"agent:main')
    brought, skipped = read(home)
    assert brought == {} and skipped["sessions.json"] == "the index cannot be read"
