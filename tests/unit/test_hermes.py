"""A hermes home is read whole, and nothing in it is believed blindly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.context import marks
from shared.context.legal import is_legal
from shared.errors import Malformed
from shared.moving.conversation import Conversation, Skipped
from shared.moving.hermes import HermesHome
from shared.moving.old_keys import Sharing
from tests.support.older import AT, Hermes, origin, said


def read(home: Path, sharing: Sharing | None = None) -> tuple[dict[str, Conversation], dict[str, str]]:
    """What comes along, and what does not and why."""
    reader = HermesHome(home, sharing or Sharing())
    found = list(reader)
    reader.close()
    assert len(found) == reader.total
    brought = {one.ref: one for one in found if isinstance(one, Conversation)}
    return brought, {one.ref: one.reason for one in found if isinstance(one, Skipped)}


def texts(one: Conversation) -> list[str]:
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
    assert [one.note for one in brought.values()] == [None] * len(places)


def test_what_a_group_shared_does_not_become_one_persons(hermes: Hermes) -> None:
    hermes.entry("agent:main:telegram:group:-9", "s", origin(-9, chat_type="group"))
    hermes.session("s", said("a"))
    home = hermes.write_index()
    brought, _ = read(home)
    assert str(brought["s"].key) == "agent:main:telegram:group:-9"
    assert brought["s"].note == "it goes on only with GROUP_SESSIONS_PER_USER=false"
    assert read(home, Sharing(group_per_user=False))[0]["s"].note is None


def test_a_key_that_can_be_read_in_two_ways_is_not_guessed(hermes: Hermes) -> None:
    hermes.entry("agent:main:telegram:group:-9:17", "s", None)
    hermes.session("s", said("a"))
    _, skipped = read(hermes.write_index())
    assert "two ways" in skipped["s"]


def test_tool_calls_reasoning_and_superseded_rows_come_along(hermes: Hermes) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "undone", "active": 0},
        {"role": "user", "content": "look", "reasoning": "users do not reason"},
        {"role": "assistant", "content": None, "tool_calls": json.dumps([call]), "reasoning": "hm"},
        {"role": "tool", "content": "found", "tool_call_id": "c1", "tool_name": "look"},
        {
            "role": "assistant",
            "content": '\x00json:[{"type": "text", "text": "here"}, {"type": "image_url", "image_url": "data:x"}]',
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
    assert entries[3].text == "here\n[image]" and is_legal(entries)
    assert [row.at for row in one.rows] == [int(AT + n) * 1000 for n in range(5)]


def test_earlier_sessions_of_a_chat_come_along_with_title_and_parent(hermes: Hermes) -> None:
    hermes.session("first", said("long ago"), title="Plans", ended_at=AT + 5, end_reason="compression")
    hermes.talk(1, "second", "now", parent_session_id="first", title="Plans #2")
    hermes.session("terminal", said("x"), source="cli")
    brought, skipped = read(hermes.write_index())
    first, second = brought["first"], brought["second"]
    assert (second.parent, second.is_current, second.title, second.ended_at) == ("first", True, "Plans #2", None)
    assert (first.key, first.is_current, first.title, first.end_reason) == (second.key, False, "Plans", "compression")
    assert skipped == {"terminal": "nothing says in which chat it was held (cli)"}


def test_a_newer_home_keeps_its_index_in_the_database(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path / "home", newer=True)
    hermes.talk(1, "old", "a")
    hermes.session("new", said("b"), session_key="agent:main:telegram:dm:1", origin_json=json.dumps(origin(1)))
    hermes.session("other", said("c"), chat_id="2", chat_type="dm", user_id="2")
    assert hermes.database is not None
    hermes.database.execute(
        "CREATE TABLE gateway_routing (scope TEXT, session_key TEXT, entry_json TEXT, updated_at REAL)"
    )
    entry = json.dumps({"session_id": "new", "origin": origin(1)})
    hermes.database.execute("INSERT INTO gateway_routing VALUES ('', 'agent:main:telegram:dm:1', ?, 1)", [entry])
    brought, skipped = read(hermes.write_index())
    assert {ref: one.is_current for ref, one in brought.items()} == {"new": True, "other": False}
    assert str(brought["other"].key) == "agent:main:telegram:dm:2"
    assert list(skipped) == ["old"]  # its key has moved on to another, and it says nothing itself


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
