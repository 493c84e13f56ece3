"""What the older gateways did for their files, as it holds here: rows of BEHAVIOUR's tables, met by transactions."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from producers.message_body import normalise
from shared.clock import now_ms
from shared.context.history import window
from shared.context.replay import NO_OUTPUT
from shared.errors import AlreadyDone, Malformed, Superseded, Unavailable
from shared.messages import Entry, Mail, Reply, Session
from shared.store import Store, open_store
from shared.store.change import NO_CHANGE, Change, Commit
from tests.store.books import ask, commit, contents, load, mail, proof, raw, write
from tests.support.pipe import an_inbound, key_of


async def say(store: Store, *rows: Entry, chat: str = "c1", change: Change | None = None) -> None:
    """A turn that leaves these rows."""
    letter = await mail(store, chat=chat)
    session = await load(store, key_of(chat))
    await store.commit(turn(session, letter, rows, chat=chat, change=change or Change()))


def turn(
    session: Session, letter: Mail, rows: Sequence[Entry], *, chat: str = "c1", change: Change = NO_CHANGE
) -> Commit:
    """The commit of a turn on `letter` that says ok."""
    return Commit(session, key_of(chat), proof(), [letter], rows, [Reply("ok")], change=change)


async def texts(store: Store, chat: str = "c1") -> list[str]:
    return [entry.text for entry in await store.transcript.window(key_of(chat), before=10**9)]


async def test_X1_after_a_rewrite_the_shorter_conversation_is_loaded(store: Store) -> None:
    """A rewrite is a commit that makes rows inactive and adds the new ones; the old ones stay on disk."""
    await say(store, *(Entry("user", str(n)) for n in range(4)))
    await say(store, Entry("user", "a"), Entry("assistant", "b"), change=Change(inactive_from=1))
    assert await texts(store) == ["a", "b"]
    assert [entry.text for entry in (await load(store)).history] == ["a", "b"]
    assert [row["n"] for row in await ask(store, "SELECT COUNT(*) AS n FROM messages")] == [6]


async def test_X2_a_rewrite_with_nothing_leaves_nothing(store: Store) -> None:
    await say(store, *(Entry("user", str(n)) for n in range(4)))
    await say(store, change=Change(inactive_from=1))
    assert await texts(store) == [] and (await load(store)).history == ()


async def test_X6_a_tool_conversation_is_exactly_its_rows(store: Store) -> None:
    rows = [Entry("user", "q")]
    for n in range(5):
        rows.append(Entry("assistant", "", data={"tool_calls": [{"id": f"t{n}", "name": "f", "arguments": "{}"}]}))
        rows.append(Entry("tool", f"r{n}", data={"tool_call_id": f"t{n}", "name": "f"}))
    await say(store, *rows, Entry("assistant", "done"))
    stored = await ask(store, "SELECT n, role FROM messages ORDER BY n")
    assert [row["n"] for row in stored] == list(range(1, 13))
    assert [row["role"] for row in stored] == ["user", *["assistant", "tool"] * 5, "assistant"]


async def test_X9_a_turn_adds_its_own_rows_and_none_of_the_history(store: Store) -> None:
    """Rows are numbered from the count of the session that was loaded, so what is there already is never written again."""
    for n in range(3):
        session = await load(store)
        await commit(store, session, await mail(store, f"q{n}"), replies=(f"a{n}",))
    await say(store)  # an agent that said nothing new
    assert [row["text"] for row in await ask(store, "SELECT text FROM messages ORDER BY n")] == [
        text for n in range(3) for text in (f"q{n}", f"a{n}")
    ]


async def test_X10_N47_a_database_that_is_away_is_an_error_and_never_an_empty_session(tmp_path: Path) -> None:
    """There is no second store to fall back to: the commit waits or the message stays in the journal."""
    url = f"sqlite:///{tmp_path}/there/keyturn.db"
    store = await open_store(url, 10)
    await store.database.migrate()
    await commit(store, await load(store), await mail(store, "kept"))
    await store.database.close()
    (tmp_path / "there" / "keyturn.db").rename(tmp_path / "aside.db")
    (tmp_path / "there" / "keyturn.db").mkdir()
    store = await open_store(url, 10)
    with pytest.raises(Unavailable):
        await load(store)
    with pytest.raises(Unavailable):
        await store.sessions.listed(10)
    await store.database.close()
    (tmp_path / "there" / "keyturn.db").rmdir()
    (tmp_path / "aside.db").rename(tmp_path / "there" / "keyturn.db")
    store = await open_store(url, 10)
    assert [entry.text for entry in (await load(store)).history] == ["kept", "hi"]
    await store.database.close()


async def test_N45_a_full_disk_in_the_middle_of_a_commit_leaves_what_was_there(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/keyturn.db", 10)
    await store.database.migrate()
    await commit(store, await load(store), await mail(store, "before"))
    letter, session, before = await mail(store, "more"), await load(store), await contents(store)
    [pages] = await ask(store, "PRAGMA page_count")
    await write(store, f"PRAGMA max_page_count = {pages['page_count']}")
    rows = [Entry("user", "x" * 3000) for _ in range(400)]
    with pytest.raises(Unavailable):
        await store.commit(turn(session, letter, rows))
    assert await contents(store) == before
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("keyturn.db")] == []
    await store.database.close()
    store = await open_store(f"sqlite:///{tmp_path}/keyturn.db", 10)  # the disk has room again
    await store.commit(turn(await load(store), letter, rows))
    await store.database.close()


async def test_N46_a_writer_waits_for_the_one_that_has_the_file(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/keyturn.db", 10)
    await store.database.migrate()
    letter, session = await mail(store), await load(store)
    other = sqlite3.connect(tmp_path / "keyturn.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(commit(store, session, letter))
    assert (await load(store)).version == 0 and not waiting.done()  # readers are not kept waiting
    other.execute("ROLLBACK")
    other.close()
    assert (await waiting).session.version == 1
    await store.database.close()


async def test_N48_of_commits_at_once_one_that_fails_takes_no_other_with_it(store: Store) -> None:
    good, bad = await mail(store, chat="good"), await mail(store, chat="bad")
    loaded = {chat: await load(store, key_of(chat)) for chat in ("good", "bad")}
    await commit(store, loaded["bad"], bad)
    outcomes = await asyncio.gather(
        commit(store, loaded["good"], good), commit(store, loaded["bad"], bad), return_exceptions=True
    )
    assert not isinstance(outcomes[0], BaseException) and isinstance(outcomes[1], Superseded)
    assert (await load(store, key_of("good"))).version == 1


async def test_N51_N52_a_session_is_read_as_it_stands_and_never_from_a_cache(store: Store) -> None:
    """Nothing is cached between leases, so nothing is evicted: whoever holds an older copy cannot commit it."""
    session = await load(store)
    held = session
    for n in range(3):
        session = (await commit(store, session, await mail(store, str(n)))).session
    assert await load(store) == session
    with pytest.raises(Superseded):
        await commit(store, held, await mail(store, "late"))


async def test_N53_a_session_that_was_only_looked_at_leaves_nothing(store: Store) -> None:
    await load(store, key_of("only looked at"))
    await store.sessions.listed(10)
    assert all(rows == [] for rows in (await contents(store)).values())


async def test_N54_a_row_that_cannot_be_read_does_not_hide_its_session_in_the_list(store: Store) -> None:
    await say(store, Entry("user", "hello"))
    await write(store, "UPDATE messages SET data = :broken", broken="{not json")
    [row] = await store.sessions.listed(10)
    assert (row["session_key"], row["preview"]) == (key_of(), "hello")


async def test_E12_a_session_is_found_by_its_id_and_a_missing_or_empty_one_is_none(store: Store) -> None:
    await say(store, Entry("user", "hello"))
    row = await store.sessions.find(key_of())
    assert row is not None and await store.sessions.find(row["id"]) == row
    assert await store.sessions.find("ses_missing") is None and await store.sessions.find("") is None


async def test_E13_sessions_are_listed_newest_first_from_a_time_on_that_is_included(store: Store) -> None:
    for at, chat in enumerate(("first", "second", "third"), 1):
        await say(store, Entry("user", chat), chat=chat)
        await write(store, "UPDATE sessions SET updated_at = :at WHERE session_key = :key", at=at, key=key_of(chat))
    assert [row["session_key"] for row in await store.sessions.listed(10, since=2)] == [
        key_of("third"),
        key_of("second"),
    ]
    assert [row["session_key"] for row in await store.sessions.listed(1)] == [key_of("third")]
    assert await store.sessions.listed(10, since=now_ms()) == []


async def test_a_list_shows_title_and_first_words_and_reads_no_more(store: Store) -> None:
    await say(store, Entry("user", "/title x", data={"command": True}), change=Change(title="Named"))
    await say(store, Entry("user", "first   words\n" + "x" * 300), Entry("assistant", "answer"))
    await say(store, Entry("assistant", "a morning greeting", data={"proactive": True}), chat="quiet")
    listed = {row["session_key"]: row for row in await store.sessions.listed(10)}
    named, quiet = listed[key_of()], listed[key_of("quiet")]
    assert (named["title"], named["message_count"]) == ("Named", 3)
    assert (
        named["preview"].startswith("first words xxx") and len(named["preview"]) == 120 and named["preview"][-1] == "…"
    )
    assert (quiet["title"], quiet["preview"]) == (None, "a morning greeting")


async def test_N59_N60_N61_a_commit_that_breaks_off_leaves_no_half_turn(store: Store) -> None:
    """There are no checkpoints to repair: user row, calls and results are written by one commit, or none of them."""
    letter, session = await mail(store, "question"), await load(store)
    half = [Entry("user", "question"), Entry("assistant", "", data={"tool_calls": [{"id": "t", "name": "f"}]})]
    # A late statement of the commit fails when the rows before it are written: the next session has an id that is taken.
    broken = Change(next_session_id=session.id)
    with pytest.raises(AlreadyDone):
        await store.commit(turn(session, letter, half, change=broken))
    assert (await load(store)).history == () and await ask(store, "SELECT * FROM messages") == []
    found = await store.journal.find(letter.inbound.id)
    assert found is not None and found["state"] == "pending"  # so the next holder runs it again, once
    await commit(store, await load(store), letter)
    with pytest.raises(Superseded):
        await commit(store, session, letter)
    assert len(await ask(store, "SELECT * FROM messages")) == 2


async def test_N64_an_empty_tool_result_is_shown_as_a_placeholder_so_that_the_pair_stays_legal(store: Store) -> None:
    calls = [{"id": "t1", "name": "f", "arguments": "{}"}]
    result = Entry("tool", "", data={"tool_call_id": "t1", "name": "f"})
    await say(store, Entry("user", "q"), Entry("assistant", "", data={"tool_calls": calls}), result)
    rows = window((await load(store)).history)
    assert [(row.role, row.text) for row in rows] == [("user", "q"), ("assistant", ""), ("tool", NO_OUTPUT)]


async def test_N65_a_message_that_was_never_answered_does_not_spoil_the_rows_after_it(store: Store) -> None:
    await say(store, Entry("user", "never answered"))
    calls = [{"id": "t1", "name": "f", "arguments": "{}"}]
    await say(
        store,
        Entry("user", "second"),
        Entry("assistant", "", data={"tool_calls": calls}),
        Entry("tool", "result", data={"tool_call_id": "t1", "name": "f"}),
    )
    history = (await load(store)).history
    assert [entry.role for entry in history] == ["user", "user", "assistant", "tool"]
    assert history[2].data["tool_calls"] == calls and history[3].data["tool_call_id"] == "t1"


async def test_N66_the_same_event_delivered_twice_is_stored_once_and_an_empty_one_never(store: Store) -> None:
    """What arrives from elsewhere has an event id; a second one with the same id is the first."""
    with pytest.raises(Malformed, match="text or media is needed"):
        normalise({"chat": {"id": "c1"}, "user": {"id": "u1"}, "text": ""}, "webhook", "task-0", now_ms())
    inbound = an_inbound("result", event_id="task-1")
    letter = Mail(10**15 + 1, inbound, journaled=False)
    session = (await commit(store, await load(store), letter)).session
    with pytest.raises(AlreadyDone):
        await commit(store, session, letter)
    [counted] = await store.database.read(raw("SELECT COUNT(*) AS n FROM messages WHERE role = 'user'"))
    assert counted == [{"n": 1}]
