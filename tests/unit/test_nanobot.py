"""A nanobot workspace is read as far as it can be read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from shared.context import marks
from shared.errors import Malformed
from shared.moving.conversation import Conversation, Skipped
from shared.moving.nanobot import NanobotWorkspace, read_file
from shared.moving.old_keys import Sharing
from tests.support.older import Nanobot, said

KEY = "telegram:11"


def read(workspace: Path, sharing: Sharing | None = None) -> dict[str, Conversation | Skipped]:
    return {one.ref: one for one in NanobotWorkspace(workspace, sharing or Sharing())}


def conversation(workspace: Path, key: str = KEY) -> Conversation:
    one = read(workspace)[key]
    assert isinstance(one, Conversation)
    return one


def texts(one: Conversation) -> list[str]:
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
        {"role": "user", "content": [{"type": "text", "text": "see"}], "media": ["/srv/a.png"]},
    ]
    nanobot.session(KEY, rows)
    hello, hi, command, hidden, picture = (row.entry for row in conversation(nanobot.workspace).rows)
    assert hello.text == "hello"
    assert hi.data[marks.PROACTIVE] is True and hi.data[marks.REASONING] == "hm"
    assert command.data[marks.COMMAND] is True and hidden.data[marks.HIDDEN] is True
    assert [media.name for media in marks.media_of(picture)] == ["a.png"]


def test_a_key_becomes_the_one_that_the_next_message_has(nanobot: Nanobot) -> None:
    keys = {
        "telegram:11": "agent:main:telegram:dm:11",
        "telegram:-100:topic:17": "agent:main:telegram:group:-100:t=17",
        "discord:5:thread:6": "agent:main:discord:group:5:t=6",
        "slack:C1:17.5": "agent:main:slack:group:C1:t=17.5",
        "whatsapp:1@g.us": "agent:main:whatsapp:group:1@g.us",
        "matrix:!r:x.org": "agent:main:matrix:group:!r%3Ax.org",
        "cli:direct": "agent:main:local:dm:direct",
    }
    for key in keys:
        nanobot.session(key, said("a"))
    found = read(nanobot.workspace)
    assert {key: str(one.key) for key, one in found.items() if isinstance(one, Conversation)} == keys
    notes = {key for key, one in found.items() if isinstance(one, Conversation) and one.note}
    assert notes == {"whatsapp:1@g.us", "matrix:!r:x.org"}  # groups that shared one conversation; threads do here too


def test_one_session_for_all_channels_goes_on_where_it_was_last(nanobot: Nanobot) -> None:
    nanobot.session("unified:default", said("a"), metadata={"last_channel": "telegram:11"})
    assert str(conversation(nanobot.workspace, "unified:default").key) == "agent:main:telegram:dm:11"
    nanobot.session("unified:default", said("a"))
    assert isinstance(read(nanobot.workspace)["unified:default"], Skipped)


def test_what_was_no_chat_stays_behind(nanobot: Nanobot) -> None:
    for key in ("heartbeat", "cron:1", "dream:x"):
        nanobot.session(key, said("a"))
    assert {type(one) for one in read(nanobot.workspace).values()} == {Skipped}


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
