"""A nanobot workspace is read as far as it can be read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from keyturn.importing.conversation import OldConversation, Skipped
from keyturn.importing.nanobot.workspace import NanobotWorkspace, read_file
from keyturn.importing.rows import BLOCKS_LIMIT
from shared.context import marks
from shared.errors import Malformed
from shared.routing import Sharing
from tests.support.older import Nanobot, said

KEY = "telegram:11"


def read(workspace: Path, sharing: Sharing | None = None) -> dict[str, OldConversation | Skipped]:
    return {one.ref: one for one in NanobotWorkspace(workspace, sharing or Sharing())}


def conversation(workspace: Path, key: str = KEY) -> OldConversation:
    one = read(workspace)[key]
    assert isinstance(one, OldConversation)
    return one


def texts(one: OldConversation) -> list[str]:
    return [row.entry.text for row in one.rows]


@pytest.fixture
def nanobot(tmp_path: Path) -> Nanobot:
    return Nanobot(tmp_path / "workspace")


def test_N39_of_a_truncated_file_the_earlier_rows_are_recovered(nanobot: Nanobot) -> None:
    path = nanobot.session(KEY, said("a", "b", "c"))
    path.write_bytes(path.read_bytes()[:-20])
    one = conversation(nanobot.workspace)
    assert (texts(one), one.corrupt) == (["a", "b"], 1)


def test_N40_after_a_first_line_of_garbage_the_messages_are_recovered(nanobot: Nanobot) -> None:
    nanobot.lines(KEY, '{"_type": "meta', *said("a", "b"))
    one = conversation(nanobot.workspace)
    assert (texts(one), str(one.key), one.corrupt) == (["a", "b"], "agent:main:telegram:dm:11", 1)


def test_N41_a_file_of_garbage_is_no_session(nanobot: Nanobot) -> None:
    """The chat then begins an empty one, as every chat does that Keyturn does not know."""
    path = nanobot.lines(KEY, "garbage", "\x00\x01", "[1]")
    assert read_file(path) is None
    assert list(read(nanobot.workspace).values()) == [Skipped(path.name, "nothing in it can be read")]


def test_N42_an_empty_file_is_an_empty_session_with_the_right_key(nanobot: Nanobot) -> None:
    nanobot.path("slack:D7").write_text("")
    one = conversation(nanobot.workspace, "slack:D7")
    assert (one.rows, str(one.key)) == ((), "agent:main:slack:dm:D7")


def test_N43_bad_dates_are_replaced_and_an_offset_beyond_the_rows_is_0(nanobot: Nanobot) -> None:
    summary = {"_last_summary": {"text": "they talked", "last_active": "x"}}
    bad = {"created_at": "yesterday", "updated_at": 10**30, "last_consolidated": 5, "metadata": summary}
    path = nanobot.session(KEY, [{"role": "user", "content": "a", "timestamp": "noon"}], **bad)
    os.utime(path, (1_800_000_000, 1_800_000_000))
    one = conversation(nanobot.workspace)
    assert (one.created_at, one.updated_at, one.rows[0].at) == (1_800_000_000_000,) * 3
    assert one.facts == {}  # nothing of it is hidden behind the summary


@pytest.mark.parametrize("offset", [-1, True, "2", None, 2.0])
def test_an_offset_that_is_no_count_is_0(nanobot: Nanobot, offset: object) -> None:
    path = nanobot.session(KEY, said("a", "b"), last_consolidated=offset)
    found = read_file(path)
    assert found is not None and found.consolidated == 0


def test_goal_and_title_come_along(nanobot: Nanobot) -> None:
    goal = json.dumps({"status": "active", "objective": "ship it", "recap": "x"})
    nanobot.session(KEY, said("a", "b"), metadata={"thread_goal": goal, "title": " A  title\n"})
    one = conversation(nanobot.workspace)
    assert one.title == "A title"
    assert json.loads(one.facts["goal"]) == {"status": "active", "objective": "ship it"}


def test_what_a_summary_stands_for_is_kept_and_not_shown_save_for_the_end(nanobot: Nanobot) -> None:
    metadata = {"_last_summary": {"text": "they talked"}}
    for count, offset, shown in ((20, 4, 16), (20, 20, 8), (6, 6, 6), (6, 0, 6)):
        nanobot.session(KEY, said(*(str(n) for n in range(count))), last_consolidated=offset, metadata=metadata)
        one = conversation(nanobot.workspace)
        assert [row.active for row in one.rows] == [False] * (count - shown) + [True] * shown
        told = {"summary": "they talked", "consolidated": str(count - shown)} if offset else {}
        assert one.facts == told


def test_without_its_summary_nothing_is_hidden(nanobot: Nanobot) -> None:
    nanobot.session(KEY, said(*(str(n) for n in range(20))), last_consolidated=12)
    one = conversation(nanobot.workspace)
    assert all(row.active for row in one.rows) and one.facts == {}


def test_the_marks_of_its_rows_are_ours(nanobot: Nanobot) -> None:
    suffix = "[Runtime Context]\ngoal"
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": f"hello\n\n{suffix}", "_runtime_context": {"version": 1, "suffix": suffix}},
        {"role": "assistant", "content": "hi", "reasoning_content": "hm", "_channel_delivery": True},
        {"role": "user", "content": "/help", "_command": True},
        {"role": "user", "content": "done", "injected_event": "subagent_result"},
        {"role": "user", "content": "tick", "_automation_turn": {"kind": "cron"}},
        {"role": "user", "content": [{"type": "text", "text": "see"}], "media": ["/srv/a.png"]},
    ]
    nanobot.session(KEY, rows)
    hello, hi, command, hidden, tick, picture = (row.entry for row in conversation(nanobot.workspace).rows)
    assert hello.text == "hello"
    assert hi.data[marks.PROACTIVE] is True and hi.data[marks.REASONING] == "hm"
    assert command.data[marks.COMMAND] is True
    assert hidden.data[marks.HIDDEN] is True and tick.data[marks.HIDDEN] is True
    assert [media.name for media in marks.media_of(picture)] == ["a.png"]


def test_a_key_becomes_the_one_that_the_next_message_has(nanobot: Nanobot) -> None:
    keys = {
        "telegram:11": "agent:main:telegram:dm:11",
        "telegram:-100:topic:17": "agent:main:telegram:group:-100:t=17",
        "discord:5:thread:6": "agent:main:discord:group:5:t=6",
        "slack:C1:17.5": "agent:main:slack:group:C1:t=17.5",
        "whatsapp:1@g.us": "agent:main:whatsapp:group:1@g.us",
        "matrix:!r:x.org": "agent:main:matrix:group:!r%3Ax.org",
        "matrix:!r:x.org:thread:$e:x.org": "agent:main:matrix:group:!r%3Ax.org:t=%24e%3Ax.org",
        "dingtalk:group:g1": "agent:main:dingtalk:group:group%3Ag1",
        "dingtalk:group:g1:u9": "agent:main:dingtalk:group:group%3Ag1:u=u9",
        "cli:direct": "agent:main:local:dm:terminal",
        "cli:work": "agent:main:local:dm:work",
        "api:default": "agent:main:api:dm:default",
    }
    for key in keys:
        nanobot.session(key, said("a"))
    found = read(nanobot.workspace)
    assert {key: str(one.key) for key, one in found.items() if isinstance(one, OldConversation)} == keys
    unshared = {key for key, one in found.items() if isinstance(one, OldConversation) and one.place.needs_sharing}
    assert unshared == {"whatsapp:1@g.us", "matrix:!r:x.org", "dingtalk:group:g1"}  # threads are shared here too
    here = read(nanobot.workspace, Sharing(shared_chats=("whatsapp:1@g.us", "matrix:!r:x.org")))
    still = {key for key, one in here.items() if isinstance(one, OldConversation) and one.place.note}
    assert still == {"dingtalk:group:g1"}


def test_the_sessions_of_a_workspace_are_found_beside_it(tmp_path: Path) -> None:
    data = tmp_path / "nanobot"
    nanobot = Nanobot(data / "workspace", data=data)
    nanobot.session(KEY, said("a", "b"))
    nanobot.remember("memory/history.jsonl", '{"cursor": 1, "timestamp": "2026-01-01 00:00", "content": "they met"}\n')
    conflict = nanobot.sessions / ".migration-conflicts" / "telegram_11.workspace.0123.jsonl"
    conflict.parent.mkdir()
    conflict.write_text(json.dumps(said("an older past")[0]) + "\n")
    for path in (data / "workspace", data, data / "sessions", nanobot.sessions):
        assert [texts(one) for one in read(path).values() if isinstance(one, OldConversation)] == [["a", "b"]], path
        skipped = [one for one in read(path).values() if isinstance(one, Skipped)]
        assert skipped == [Skipped(conflict.name, "it is an older copy that nanobot set aside")]
    (data / "workspace").rename(tmp_path / "moved")
    with pytest.raises(Malformed, match="elsewhere"):
        NanobotWorkspace(tmp_path / "moved", Sharing())


def test_a_workspace_that_lies_elsewhere_has_its_sessions_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    nanobot = Nanobot(tmp_path / "projects" / "bot", data=tmp_path / ".nanobot")
    nanobot.session(KEY, said("a"))
    nanobot.remember("USER.md", "- **Name**: Olha")
    assert texts(conversation(nanobot.workspace)) == ["a"]
    for path in (nanobot.workspace, tmp_path / ".nanobot"):
        assert NanobotWorkspace(path, Sharing()).memory() == ("**Name**: Olha",)


def test_memory_files_are_notes_without_what_nobody_filled_in(nanobot: Nanobot) -> None:
    nanobot.session(KEY, said("a"))
    nanobot.remember(
        "memory/MEMORY.md",
        "# Long-term Memory\n\nThis file stores important information that should persist across sessions.\n\n"
        "## User Information\n\n- Lives in Kyiv\n- Has two\n\n## Preferences\n\n(User preferences learned over time)\n\n"
        "Likes tea\nin the morning.\n\n---\n\n*This file is updated by itself.*\n",
    )
    nanobot.remember(
        "USER.md",
        "# User Profile\n\n- **Name**: Olha\n- **Role**: (your role)\n## Style\n- [ ] Casual\n- [x] Brief\n- \n",
    )
    assert NanobotWorkspace(nanobot.workspace, Sharing()).memory() == (
        "**Name**: Olha",
        "Style: Brief",
        "User Information: Lives in Kyiv",
        "User Information: Has two",
        "Preferences: Likes tea in the morning.",
    )


def test_a_title_is_not_what_the_model_thought_of_it_unless_a_person_wrote_it(nanobot: Nanobot) -> None:
    nanobot.session(KEY, said("a"), metadata={"title": "<think>a title…</think>Trip to Rome"})
    assert conversation(nanobot.workspace).title == "Trip to Rome"
    nanobot.session(KEY, said("a"), metadata={"title": "<think>only thoughts"})
    assert conversation(nanobot.workspace).title is None
    nanobot.session(KEY, said("a"), metadata={"title": "<think>mine", "title_user_edited": True})
    assert conversation(nanobot.workspace).title == "<think>mine"


def test_thinking_blocks_and_content_blocks_are_kept_as_they_are(nanobot: Nanobot) -> None:
    thought = [
        {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "x"},
    ]
    picture = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    large = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * BLOCKS_LIMIT}}]
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": picture},
        {"role": "assistant", "content": "nice", "thinking_blocks": thought, "reasoning_content": "hm"},
        {"role": "user", "content": [{"type": "text", "text": "plain"}]},
        {"role": "user", "content": large},
    ]
    nanobot.session(KEY, rows)
    seen, nice, plain, heavy = (row.entry for row in conversation(nanobot.workspace).rows)
    assert (seen.text, seen.data[marks.BLOCKS]) == ("see\n[image]", picture)
    assert (nice.data[marks.THINKING], nice.data[marks.REASONING]) == (thought, "hm")
    assert (plain.text, heavy.text) == ("plain", "[image]")
    assert (
        marks.BLOCKS not in plain.data and marks.BLOCKS not in heavy.data
    )  # the text says it; every turn would load it


def deep_lines(levels: int) -> list[str]:
    """Messages with a value of so many levels, in each place where a value may be."""
    deep = f"{'[' * levels}1{']' * levels}"
    block = f'{{"type": "text", "text": "hello", "more": {deep}}}'
    return [
        f'{{"role": "user", "content": [{block}]}}',
        f'{{"role": "user", "content": [{block}], "_runtime_context": {{"blocks": [{block}]}}}}',
        f'{{"role": "user", "content": {deep}}}',
        f'{{"role": "user", "content": {{"a": {deep}}}}}',
        f'{{"role": "assistant", "content": "so I say", "thinking_blocks": [{{"signature": "s", "a": {deep}}}]}}',
        f'{{"role": "assistant", "content": "", "tool_calls": [{{"id": "1", "name": "f", "arguments": {deep}}}]}}',
    ]


def test_values_nested_too_deep_to_be_kept_cost_no_more_than_their_own_lines(nanobot: Nanobot) -> None:
    depths = [*range(80, 880, 20), *range(880, 1000), 100_000]  # Python itself reads somewhat less than 1,000
    for levels in depths:
        nanobot.lines(f"telegram:{levels}", *deep_lines(levels), *said("after"))
    found = read(nanobot.workspace)
    assert len(found) == len(depths)
    for one in found.values():
        assert isinstance(one, OldConversation)
        assert one.turn_id(len(one.rows))  # every row can be written
        assert texts(one)[-1] == "after" and len(one.rows) + one.corrupt == 7


def test_a_message_keeps_its_text_without_marks_that_are_nested_too_deep(nanobot: Nanobot) -> None:
    nanobot.lines(KEY, *deep_lines(300))
    one = conversation(nanobot.workspace)
    assert (texts(one)[0], texts(one)[4], one.corrupt) == ("hello", "so I say", 0)
    assert all(mark not in row.entry.data for row in one.rows for mark in (marks.BLOCKS, marks.THINKING))


def test_a_number_too_large_for_a_database_costs_the_blocks_and_not_the_text(nanobot: Nanobot) -> None:
    nanobot.session(KEY, [{"role": "user", "content": [{"type": "text", "text": "hello", "n": 10**30}]}])
    [row] = conversation(nanobot.workspace).rows
    assert row.entry.text == "hello" and marks.BLOCKS not in row.entry.data


def test_from_0_3_on_a_summary_stands_for_all_before_its_mark(nanobot: Nanobot) -> None:
    about = {"metadata": {"_last_summary": {"text": "they talked"}}, "last_archived": 18, "last_consolidated": 18}
    nanobot.session(KEY, said(*(str(n) for n in range(20))), **about)
    one = conversation(nanobot.workspace)
    assert [row.active for row in one.rows] == [False] * 18 + [True] * 2
    assert one.facts == {"summary": "they talked", "consolidated": "18"}


def test_one_session_for_all_channels_goes_on_where_it_was_last(nanobot: Nanobot) -> None:
    nanobot.session("unified:default", said("a"), metadata={"last_channel": "telegram:11"})
    assert str(conversation(nanobot.workspace, "unified:default").key) == "agent:main:telegram:dm:11"
    nanobot.session("unified:default", said("a"))
    assert isinstance(read(nanobot.workspace)["unified:default"], Skipped)


def test_what_was_no_chat_stays_behind(nanobot: Nanobot) -> None:
    for key in ("heartbeat", "cron:1", "dream:x", "fax:1"):
        nanobot.session(key, said("a"))
    assert {one.ref: one.reason for one in read(nanobot.workspace).values() if isinstance(one, Skipped)} == {
        "heartbeat": "no chat but automation: 'heartbeat'",
        "cron:1": "no chat but automation: 'cron'",
        "dream:x": "no chat but automation: 'dream'",
        "fax:1": "unknown channel: 'fax'",
    }


def test_files_of_older_versions_have_their_key_in_their_name(nanobot: Nanobot) -> None:
    (nanobot.sessions / "telegram_11.jsonl").write_text(json.dumps(said("a")[0]) + "\n")
    assert texts(conversation(nanobot.workspace)) == ["a"]


def test_a_file_that_may_not_be_read_is_an_error_and_no_empty_session(nanobot: Nanobot) -> None:
    nanobot.session(KEY, said("a"))
    nanobot.path("telegram:12").mkdir()  # what cannot be opened as a file, whoever asks
    with pytest.raises(OSError):
        read(nanobot.workspace)


def test_a_directory_without_sessions_is_no_workspace(tmp_path: Path) -> None:
    with pytest.raises(Malformed):
        NanobotWorkspace(tmp_path, Sharing())
