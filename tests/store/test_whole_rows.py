"""What a commit leaves, table by table and column by column; and that one which lost leaves nothing in any table."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from shared.errors import Superseded
from shared.messages import Entry, Mail, Reply, Session, State
from shared.store import Store, open_store
from shared.store.change import Change, Commit, Ending
from shared.store.commits import deactivate
from shared.store.database import Row
from shared.store.memory import MemoryStanding, forget_notes
from tests.store.books import ask, commit, load, mail, proof, write
from tests.support.pipe import key_of
from tests.support.servers import Databases

NOW = 1_790_000_000_000
TABLES = ("inbox", "routes", "sessions", "messages", "turns", "outbox", "dead", "facts", "flushes", "notes", "usage")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.store.commits.now_ms", lambda: NOW)


async def everything(store: Store) -> dict[str, list[Row]]:
    return {table: sorted(await ask(store, f"SELECT * FROM {table}"), key=str) for table in TABLES}


async def row_of(store: Store, table: str, where: str, *columns: str) -> dict[str, Any]:
    [row] = await ask(store, f"SELECT * FROM {table} WHERE {where}")
    return {name: row[name] for name in columns}


async def begun(store: Store) -> Session:
    """A session with two turns."""
    session = await load(store)
    for n in (1, 2):
        session = (await commit(store, session, await mail(store, f"q{n}"), replies=(f"a{n}",))).session
    return await load(store)


def a_change(session: Session) -> Change:
    facts = {(session.id, "kept"): "yes", (session.id, "gone"): None, ("ses_next", "why"): "new"}
    return Change("a title", 3, "ses_next", "session_reset", None, facts, (forget_notes("me"), deactivate(1, 1)))


async def the_commit(store: Store, session: Session, letter: Mail, turn_id: str = "turn_x") -> Commit:
    entries = [Entry("user", "q3", letter.inbound.id, {"sender": "Ann"}), Entry("assistant", "a3")]
    replies, ending = [Reply("one"), Reply("two")], Ending(State.DEAD, "error", "why")
    return Commit(session, key_of(), proof(turn_id, 3), [letter], entries, replies, ending, a_change(session))


async def prepared(store: Store) -> tuple[Session, Mail]:
    """A session with a fact and notes of its owner, another's beside it, and a message that waits."""
    await commit(store, await load(store, key_of("other")), await mail(store, chat="other"))
    session = await begun(store)
    for name in ("gone", "stays"):
        await write(store, "INSERT INTO facts VALUES (:id, :name, 'x')", id=session.id, name=name)
    for owner in ("me", "another"):
        values = "(owner, text, session_id, created_at) VALUES (:owner, 'tea', 's', 1)"
        await write(store, f"INSERT INTO notes {values}", owner=owner)
    return await load(store), await mail(store, "q3")


@pytest.mark.usefixtures("clock")
async def test_a_commit_with_every_change_leaves_these_rows_and_no_others(store: Store) -> None:
    session, letter = await prepared(store)
    before = await everything(store)
    done = await store.commit(await the_commit(store, session, letter))
    after = await everything(store)
    old, new = f"id = '{session.id}'", "id = 'ses_next'"
    columns = ("version", "turn_id", "message_count", "updated_at", "title", "ended_at", "end_reason")
    assert await row_of(store, "sessions", old, *columns) == {
        "version": 3,
        "turn_id": "turn_x",
        "message_count": 6,
        "updated_at": NOW,
        "title": "a title",
        "ended_at": NOW,
        "end_reason": "session_reset",
    }
    fresh = ("session_key", "version", "turn_id", "message_count", "created_at", "updated_at", "parent_id", "title")
    assert await row_of(store, "sessions", new, *fresh, "ended_at") == {
        "session_key": key_of(),
        "version": 1,
        "turn_id": "turn_x",
        "message_count": 0,
        "created_at": NOW,
        "updated_at": NOW,
        "parent_id": session.id,
        "title": None,
        "ended_at": None,
    }
    owners = await ask(store, f"SELECT owner FROM sessions WHERE {old} OR {new}")
    assert owners[0] == owners[1] and owners[0]["owner"]
    route = await row_of(store, "routes", f"session_key = '{key_of()}'", "session_id", "last_seq", "done_seq")
    assert route == {"session_id": "ses_next", "last_seq": 3, "done_seq": 3}
    ended = ("state", "reason", "attempts", "turn_id", "finished_at")
    assert await row_of(store, "inbox", f"id = '{letter.inbound.id}'", *ended) == {
        "state": "dead",
        "reason": "error",
        "attempts": 3,
        "turn_id": "turn_x",
        "finished_at": NOW,
    }
    rows = await ask(store, f"SELECT * FROM messages WHERE session_id = '{session.id}' ORDER BY n")
    assert [(row["n"], row["role"], row["text"], row["active"]) for row in rows] == [
        (1, "user", "q1", 0),
        (2, "assistant", "a1", 1),
        (3, "user", "q2", 0),
        (4, "assistant", "a2", 0),
        (5, "user", "q3", 1),
        (6, "assistant", "a3", 1),
    ]
    assert [(row["turn_id"], row["inbound_id"], row["created_at"]) for row in rows[4:]] == [
        ("turn_x", letter.inbound.id, NOW),
        ("turn_x", None, NOW),
    ]
    assert [row["data"] for row in rows[4:]] == ['{"sender":"Ann"}', "{}"]
    assert await row_of(store, "turns", "id = 'turn_x'", *(await ask(store, "SELECT * FROM turns"))[0]) == {
        "id": "turn_x",
        "session_id": session.id,
        "session_key": key_of(),
        "version": 3,
        "outcome": "dead",
        "attempts": 3,
        "worker": "test",
        "claimed_at": 1,
        "started_at": 2,
        "committed_at": NOW,
    }
    parts = await ask(store, "SELECT * FROM outbox WHERE turn_id = 'turn_x' ORDER BY id")
    assert tuple(part["id"] for part in parts) == done.outbox
    assert [(part["ordinal"], part["session_key"], part["destination"], part["platform"]) for part in parts] == [
        (n, key_of(), "to:webhook:c1", "webhook") for n in (1, 2)
    ]
    assert [(part["state"], part["attempts"], part["created_at"]) for part in parts] == [("pending", 0, NOW)] * 2
    assert len({part["idempotency_key"] for part in parts}) == 2
    dead = await row_of(store, "dead", "1 = 1", "kind", "ref", "session_key", "reason", "detail", "attempts", "state")
    assert dead == {
        "kind": "inbound",
        "ref": letter.inbound.id,
        "session_key": key_of(),
        "reason": "error",
        "detail": "why",
        "attempts": 3,
        "state": "open",
    }
    facts = {(row["scope"], row["name"]): row["value"] for row in after["facts"]}
    assert facts == {(session.id, "kept"): "yes", (session.id, "stays"): "x", ("ses_next", "why"): "new"}
    flush = await row_of(store, "flushes", "1 = 1", "session_id", "session_key", "state", "upto", "tries", "due_at")
    assert flush == {
        "session_id": session.id,
        "session_key": key_of(),
        "state": "due",
        "upto": 0,
        "tries": 0,
        "due_at": NOW,
    }
    assert [row["owner"] for row in after["notes"]] == ["another"]
    added = {table: len(after[table]) - len(before[table]) for table in TABLES}
    assert added == {
        **dict.fromkeys(TABLES, 0),
        "sessions": 1,
        "messages": 2,
        "turns": 1,
        "outbox": 2,
        "dead": 1,
        "facts": 1,
        "flushes": 1,
        "notes": -1,
    }
    for table in ("sessions", "messages", "routes", "inbox"):  # what belongs to another key is as it was
        others = [row for row in before[table] if key_of("other") in str(row)]
        assert all(row in after[table] for row in others)


async def test_a_session_that_ends_by_itself_leaves_its_owner_to_the_next(store: Store) -> None:
    session = await begun(store)
    assert session.owner is not None
    done = await store.commit(Commit(session, key_of(), proof(), change=Change(next_session_id="ses_next")))
    owners = await ask(store, "SELECT owner FROM sessions")
    assert [row["owner"] for row in owners] == [session.owner] * 2 and done.session.owner == session.owner


async def test_a_commit_that_lost_leaves_no_table_changed_whatever_it_was_to_change(store: Store) -> None:
    session, letter = await prepared(store)
    late = await the_commit(store, session, letter, "turn_late")
    await commit(store, session, await mail(store, "won"))
    before = await everything(store)
    with pytest.raises(Superseded):
        await store.commit(late)
    assert await everything(store) == before


@pytest.mark.parametrize(
    ("state", "upto", "left"),
    [
        ("done", 3, ("due", 0, NOW)),
        ("done", 4, ("done", 2, 7)),
        ("due", 0, ("due", 2, 7)),
        ("nothing", 0, ("due", 0, NOW)),
    ],
)
@pytest.mark.usefixtures("clock")
async def test_a_session_that_ends_is_looked_through_unless_all_of_it_was(
    store: Store, state: str, upto: int, left: tuple[str, int, int]
) -> None:
    session = await begun(store)
    values = "VALUES (:id, :key, :state, :upto, 2, 7, 'old')"
    await write(store, f"INSERT INTO flushes {values}", id=session.id, key=key_of(), state=state, upto=upto)
    await store.commit(Commit(session, key_of(), proof(), change=Change(end_reason="session_reset")))
    [row] = await ask(store, "SELECT * FROM flushes")
    assert (row["state"], row["tries"], row["due_at"], row["upto"]) == (*left, upto)


async def test_a_replayed_reply_waits_as_if_it_had_never_been_tried(store: Store) -> None:
    await commit(store, await load(store), await mail(store), replies=("one", "two"))
    one, two = await store.outbox.open_parts("to:webhook:c1", 10)
    for part in (one, two):
        assert await store.outbox.sending(part, "lease")
        await store.outbox.failed(part, "wait", asked_to_wait=True)
        await store.outbox.bury(part, "unreachable", "502")
    [letter] = await ask(store, "SELECT * FROM dead WHERE ref = :ref", ref=str(one.id))
    assert await store.dead.send_again(letter["id"], one.id) == (True, "to:webhook:c1")
    [again] = await store.outbox.open_parts("to:webhook:c1", 10)
    assert (again.id, again.attempts, again.waits, again.counted, again.sending) == (one.id, 0, 0, 0, False)
    [row] = await ask(store, "SELECT reason FROM outbox WHERE id = :id", id=one.id)
    assert row["reason"] is None
    assert await store.dead.send_again(letter["id"], one.id) == (False, None)
    states = await ask(store, "SELECT state FROM dead ORDER BY id")
    assert [row["state"] for row in states] == ["replayed", "open"]


async def test_a_reply_that_was_sent_after_it_was_given_up_is_not_sent_again(store: Store) -> None:
    await commit(store, await load(store), await mail(store), replies=("one",))
    [part] = await store.outbox.open_parts("to:webhook:c1", 10)
    await store.outbox.bury(part, "unreachable", "502")
    await write(store, "UPDATE outbox SET state = 'sent', receipt = 'm1'")
    [letter] = await ask(store, "SELECT id FROM dead")
    assert await store.dead.send_again(letter["id"], part.id) == (True, None)
    assert await ask(store, "SELECT state, receipt FROM outbox") == [{"state": "sent", "receipt": "m1"}]
    assert await ask(store, "SELECT state FROM dead") == [{"state": "replayed"}]


async def test_a_part_is_buried_once_and_not_after_it_was_sent(store: Store) -> None:
    await commit(store, await load(store), await mail(store), replies=("one", "two"))
    one, two = await store.outbox.open_parts("to:webhook:c1", 10)
    await store.outbox.sent(two, "m2")
    for part in (one, one, two):
        await store.outbox.bury(part, "refused", "403")
    [letter] = await ask(store, "SELECT * FROM dead")
    kept = {name: letter[name] for name in ("kind", "ref", "session_key", "reason", "detail", "attempts", "state")}
    assert kept == {
        "kind": "reply",
        "ref": str(one.id),
        "session_key": key_of(),
        "reason": "refused",
        "detail": "403",
        "attempts": letter["attempts"],
        "state": "open",
    }
    assert "one" in letter["payload"]
    states = await ask(store, "SELECT state, reason, receipt FROM outbox ORDER BY id")
    assert states == [
        {"state": "buried", "reason": "refused", "receipt": None},
        {"state": "sent", "reason": None, "receipt": "m2"},
    ]


async def test_a_look_for_notes_is_closed_only_for_the_version_that_was_looked_through(store: Store) -> None:
    session = await begun(store)
    await write(store, "INSERT INTO flushes VALUES (:id, 'k', 'due', 0, 0, 7, '')", id=session.id)
    standing = await store.memory.standing(session.id)
    assert standing is not None
    assert await store.memory.begin(session.id, "turn_a") == 1
    assert await store.memory.begin(session.id, "turn_b") == 2
    assert not await store.memory.done(session.id, "turn_a", standing, "me", ("late",))  # another try began since
    await store.memory.failed(session.id, "turn_a", 99)
    [row] = await ask(store, "SELECT state, due_at, tries FROM flushes")
    assert row == {"state": "due", "due_at": 7, "tries": 2}
    await store.memory.failed(session.id, "turn_b", 99)
    await commit(store, session, await mail(store, "more"))
    await store.memory.close(session.id, standing, "nothing", 4)  # the session has moved on
    assert not await store.memory.done(session.id, "turn_b", standing, "me", ("late",))
    [row] = await ask(store, "SELECT state, due_at, upto FROM flushes")
    assert row == {"state": "due", "due_at": 99, "upto": 0}
    now = await store.memory.standing(session.id)
    assert isinstance(now, MemoryStanding)
    assert await store.memory.done(session.id, "turn_b", now, "me", ("tea", "cake"))
    [row] = await ask(store, "SELECT state, upto FROM flushes")
    assert (row["state"], [note.text for note in await store.memory.of("me", 10)]) == ("done", ["tea", "cake"])
    assert await store.memory.standing(session.id) is None and await store.memory.begin(session.id, "turn_c") is None


@pytest.fixture
def sqlite_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


async def test_a_database_that_is_closed_leaves_no_thread(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, 10)
    await commit(store, await load(store), await mail(store))
    await store.database.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("sqlite-")]
