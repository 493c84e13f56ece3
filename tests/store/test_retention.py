"""Retention removes what is old enough and nothing else: not what waits, not what an operator must still decide, no transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shared.clock import now_ms
from shared.messages import State
from shared.settings import RetentionSettings
from shared.store import Store, open_store, retention
from shared.store.change import Ending
from shared.store.grams import grams_of
from shared.store.signature import Signature
from tests.store.books import ask, commit, load, mail, write
from tests.store.test_deletion import everything, found, found_in, noted
from tests.support.pipe import key_of
from workers.upkeep.prune import FEWEST, MOST, next_limit

LATER = now_ms() + 10**9  # everything of now is older than this
WORDS = "canaryzyxq"


async def all_of(step: Any, before: Any = LATER, limit: int = 2) -> int:
    """Steps until nothing more is old, as a housekeeper makes them."""
    removed = 0
    while count := await step(before, limit):
        removed += count
    return removed


async def test_an_emptied_journal_still_knows_a_redelivery_and_what_waits_or_is_to_be_decided_keeps_its_words(
    store: Store,
) -> None:
    answered, dead = await mail(store, WORDS), await mail(store, WORDS)
    session = (await commit(store, await load(store), answered)).session
    await commit(store, session, dead, replies=(), ending=Ending(State.DEAD, "malformed", "unreadable"))
    waiting = await mail(store, "waits")
    assert await store.retention.journal(1, 10) == 0  # nothing is as old as that
    assert await all_of(store.retention.journal) == 1
    rows = {row["id"]: row["payload"] for row in await ask(store, "SELECT id, payload FROM inbox")}
    assert rows[answered.inbound.id] == "" and rows[dead.inbound.id] and rows[waiting.inbound.id]
    known = await store.journal.accept(answered.inbound, b"{}", key_of(), 10)
    assert not known.fresh and known.state == State.ANSWERED
    await write(store, "UPDATE dead SET state = 'dropped'")
    assert await all_of(store.retention.journal) == 1


async def test_a_row_names_its_conversation_only_while_something_is_found_by_it(store: Store) -> None:
    kept, parted, of_api = await mail(store, chat="c1"), await mail(store, chat="c2"), await mail(store, chat="c3")
    for letter in (kept, parted, of_api):
        key = key_of(letter.inbound.source.chat)
        await commit(store, await load(store, key), letter, replies=("hi",) if letter is parted else ())
    await write(store, "UPDATE inbox SET platform = 'api' WHERE id = :id", id=of_api.inbound.id)
    assert await all_of(lambda before, limit: store.retention.journal(before, limit, turns_before=LATER)) == 3
    rows = [await store.journal.find(letter.inbound.id) for letter in (kept, parted, of_api)]
    assert [(row["state"], row["payload"]) for row in rows if row] == [(State.ANSWERED, "")] * 3
    assert [row["session_key"] for row in rows if row] == ["", key_of("c2"), key_of("c3")]
    assert [bool(row["turn_id"]) for row in rows if row] == [False, True, False]
    for letter in (kept, parted, of_api):
        known = await store.journal.accept(letter.inbound, b"{}", key_of(letter.inbound.source.chat), 10)
        assert not known.fresh and known.session_key == key_of(letter.inbound.source.chat)


async def test_a_row_names_its_turn_as_long_as_turns_are_kept(store: Store) -> None:
    letter = await mail(store)
    await commit(store, await load(store), letter, replies=())
    assert await all_of(store.retention.journal) == 1
    [row] = await ask(store, "SELECT * FROM inbox")
    assert row["payload"] == "" and row["turn_id"] and row["session_key"] == key_of()


async def test_pages_of_emptied_messages_are_free_for_others_in_sqlite(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/keyturn.db", 10)
    try:
        await store.database.migrate()
        for n in range(30):
            key = key_of(f"c{n}")
            await commit(store, await load(store, key), await mail(store, "x" * 1500, chat=f"c{n}"), replies=())
        [before], [free_before] = await ask(store, "PRAGMA page_count"), await ask(store, "PRAGMA freelist_count")
        assert await all_of(store.retention.journal, limit=10) == 30
        [after], [free] = await ask(store, "PRAGMA page_count"), await ask(store, "PRAGMA freelist_count")
        used = (after["page_count"] - free["freelist_count"], before["page_count"] - free_before["freelist_count"])
        assert used[0] <= used[1] - 10  # of 15 with two messages each
    finally:
        await store.database.close()


async def test_ended_parts_go_and_those_stay_that_wait_or_can_be_replayed(store: Store) -> None:
    await commit(store, await load(store), await mail(store), replies=("sent", "buried", "waits", "sent too"))
    sent, buried, _, sent_too = await store.outbox.open_parts("to:webhook:c1", 10)
    for part in (sent, sent_too):
        await store.outbox.sending(part, "lease")
        await store.outbox.sent(part, "receipt")
    await store.outbox.bury(buried, "refused", "no")
    assert await store.retention.outbox(1, 10) == 0
    assert await all_of(store.retention.outbox) == 2
    assert [row["state"] for row in await ask(store, "SELECT state FROM outbox ORDER BY id")] == ["buried", "pending"]
    assert await all_of(store.retention.closed_letters) == 0
    await write(store, "UPDATE dead SET state = 'dropped'")
    assert await all_of(store.retention.closed_letters) == 1 and await all_of(store.retention.outbox) == 1
    assert [row["state"] for row in await ask(store, "SELECT state FROM outbox")] == ["pending"]


async def test_a_part_that_was_given_up_stays_for_its_own_dead_letter_and_for_no_other(store: Store) -> None:
    await commit(store, await load(store), await mail(store), replies=("mine", "other"))
    mine, other = await store.outbox.open_parts("to:webhook:c1", 10)
    for part in (mine, other):
        await store.outbox.bury(part, "refused", "no")
    [letter] = [row for row in await store.dead.all(state="open", limit=10) if row["ref"] == str(mine.id)]
    assert await store.dead.close(letter["id"], "replayed")
    await store.dead.set_aside("mail", str(mine.id), key_of(), "malformed", "", "x")
    assert await all_of(store.retention.outbox) == 1
    assert [row["id"] for row in await ask(store, "SELECT id FROM outbox")] == [other.id]


@pytest.mark.parametrize("kind", ["outbox", "closed_letters", "open_letters", "audit"])
async def test_rows_whose_time_is_in_the_future_hold_up_none_behind_them(store: Store, kind: str) -> None:
    """A clock that was ahead wrote them."""
    for n in range(7):
        await commit(store, await load(store), await mail(store), replies=("hi",))
        await store.dead.set_aside("mail", str(n), key_of(), "malformed", "", "x")
        await store.audit.end(await store.audit.begin("ann", "admin", "look", str(n)), "done")
    table, time = {"outbox": ("outbox", "created_at"), "audit": ("audit", "at")}.get(kind, ("dead", "created_at"))
    if kind == "closed_letters":
        await write(store, "UPDATE dead SET state = 'dropped'")
    await write(store, "UPDATE outbox SET state = 'sent'")
    ids = [row["id"] for row in await ask(store, f"SELECT id FROM {table} ORDER BY id")]
    await write(store, f"UPDATE {table} SET {time} = 5")
    await write(store, f"UPDATE {table} SET {time} = :future WHERE id <= :id", future=now_ms() + 10**9, id=ids[2])
    await write(store, f"UPDATE {table} SET {time} = :now WHERE id = :id", now=now_ms() - 10, id=ids[6])
    for _ in range(2):  # also from the beginning again
        await all_of(getattr(store.retention, kind), 1000)
    assert [row["id"] for row in await ask(store, f"SELECT id FROM {table} ORDER BY id")] == [*ids[:3], ids[6]]


async def test_old_turns_go_and_those_of_a_key_with_an_open_dead_letter_stay(store: Store) -> None:
    for chat in ("c1", "c2"):
        letter, key = await mail(store, chat=chat), key_of(chat)
        turn_id = f"turn_{now_ms() - 10**7:012x}{chat}"
        await commit(store, await load(store, key), letter, replies=(), turn_id=turn_id)
    await store.dead.set_aside("mail", "17", key_of("c2"), "malformed", "not JSON", WORDS)
    assert await all_of(store.retention.turns) == 1
    assert [row["session_key"] for row in await ask(store, "SELECT session_key FROM turns")] == [key_of("c2")]
    assert await all_of(store.retention.open_letters) == 1 and await all_of(store.retention.turns) == 1


async def test_the_turn_of_a_reply_that_is_still_to_be_sent_stays_and_deletes_find_the_reply_by_it(
    store: Store,
) -> None:
    turn_id = f"turn_{now_ms() - 10**7:012x}"
    session = (await commit(store, await load(store), await mail(store), replies=(WORDS,), turn_id=turn_id)).session
    assert await all_of(store.retention.outbox) == 0 and await all_of(store.retention.turns) == 0
    assert await store.delete(session.id, session.version)
    assert await ask(store, "SELECT payload FROM outbox") == []
    assert await all_of(store.retention.turns) == 1


@pytest.mark.parametrize("waits", ["a part", "a letter"])
async def test_files_stay_while_a_reply_with_them_may_still_leave(store: Store, waits: str) -> None:
    """Whatever RETENTION__BLOB_DAYS and RETENTION__SESSION_DAYS say."""
    session = (await commit(store, await load(store), await mail(store), replies=("here",))).session
    other = (await commit(store, await load(store, key_of("c2")), await mail(store, chat="c2"), replies=())).session
    for id in (session.id, other.id):
        await write(store, "INSERT INTO blob_references VALUES (:digest, :id, 5)", digest=f"d_{id}", id=id)
    await write(store, "UPDATE sessions SET ended_at = 5")
    [part] = await store.outbox.open_parts("to:webhook:c1", 10)
    if waits == "a letter":
        await store.outbox.bury(part, "refused", "no")
    digest = f"d_{session.id}"
    assert await all_of(store.retention.blobs) == 1 and await all_of(store.retention.sessions)
    assert await store.blob_references.unreferred([digest]) == []
    if waits == "a letter":
        await write(store, "UPDATE dead SET state = 'dropped'")
    else:
        await store.outbox.sending(part, "lease")
        await store.outbox.sent(part, "receipt")
    assert await all_of(store.retention.blobs) == 1 and await all_of(store.retention.sessions)
    assert await store.blob_references.unreferred([digest]) == [digest]
    assert await ask(store, "SELECT id FROM sessions") == []


async def test_an_ended_conversation_goes_with_its_words_and_its_notes_and_others_stay(store: Store) -> None:
    for chat, words in (("c1", WORDS), ("c2", WORDS)):
        session = (await commit(store, await load(store, key_of(chat)), await mail(store, words, chat=chat))).session
        await commit(store, session, await mail(store, f"{words} again", chat=chat))
    await noted(store, key_of("c1"), "likes tea")
    while await store.search.index():
        pass
    gone = await load(store, key_of("c1"))
    await write(store, "UPDATE sessions SET ended_at = 5 WHERE id = :id", id=gone.id)
    await write(store, "UPDATE outbox SET state = 'sent'")
    assert len(await found(store, WORDS)) == 2 and await store.retention.sessions(5, 1) == 0
    assert await all_of(store.retention.sessions) > 1
    assert await found(store, WORDS) == [key_of("c2")]
    left = await everything(store)
    assert {row["session_id"] for row in left["messages"]} == {(await load(store, key_of("c2"))).id}
    assert [row["text"] for row in left["notes"]] == ["likes tea"]
    assert [row["id"] for row in left["sessions"] if row["id"] == gone.id] == []


@pytest.mark.parametrize("rows", [0, 2], ids=["without rows", "with rows"])
async def test_a_conversation_that_is_resumed_while_it_is_removed_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    await commit(store, await load(store), await mail(store, WORDS))
    while await store.search.index():
        pass
    if not rows:
        await write(store, "DELETE FROM messages")
    await write(store, "UPDATE sessions SET ended_at = 5")
    await write(store, "UPDATE outbox SET state = 'sent'")
    read = store.database.read

    async def resumed_after(*steps: Any) -> Any:
        """What /resume does, when retention has just read what to remove: the version stays what it was."""
        answer = await read(*steps)
        if steps[0].statement.name == "session_rows":
            await write(store, "UPDATE sessions SET ended_at = NULL")
        return answer

    monkeypatch.setattr(store.database, "read", resumed_after)
    assert await all_of(store.retention.sessions, limit=10) == max(rows, 1)
    left = await everything(store)
    assert (len(left["sessions"]), len(left["messages"])) == (1, rows)
    assert await found(store, WORDS) == [key_of()] * bool(rows)


async def test_rows_that_left_their_conversation_go_and_the_rest_is_still_found(store: Store) -> None:
    await commit(store, await load(store), await mail(store, "parrot"), replies=(WORDS,))
    while await store.search.index():
        pass
    await write(store, "UPDATE messages SET active = 0 WHERE role = 'assistant'")
    assert await all_of(store.retention.superseded) == 1
    # SQLite's index keeps deleted grams beside a mark, in its own pages, until it merges them
    elsewhere = {"inbox", "outbox", "search_grams_data", "search_grams_idx"}
    assert [piece for piece in ("canary", "zyx") if set(await found_in(store, piece)) - elsewhere] == []
    assert await found(store, "parrot") == [key_of()]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_nothing_of_a_row_that_was_removed_stays_in_a_signature(store: Store) -> None:
    await commit(store, await load(store), await mail(store, "parrot"), replies=(WORDS,))
    while await store.search.index():
        pass
    await write(store, "UPDATE messages SET active = 0 WHERE role = 'assistant'")
    assert await all_of(store.retention.superseded) == 1
    while await store.search.index():
        pass
    [span] = await ask(store, "SELECT CAST(bits AS TEXT) AS bits FROM search_spans")
    assert int(span["bits"], 2) == Signature.of(grams_of("parrot")).bits
    assert await found(store, "parrot") == [key_of()]


async def test_search_forgets_what_is_too_old_and_the_transcript_keeps_it(store: Store) -> None:
    session = (await commit(store, await load(store), await mail(store, WORDS), replies=())).session
    await commit(store, session, await mail(store, "parrot"), replies=())
    while await store.search.index():
        pass
    await write(store, "UPDATE messages SET created_at = 5 WHERE n = 1")
    assert await all_of(store.retention.search, 6, limit=1) == 1
    assert await found(store, WORDS) == [] and await found(store, "parrot") == [key_of()]
    assert len(await ask(store, "SELECT n FROM messages")) == 2


async def test_a_step_looks_at_a_part_of_the_search_index_and_the_next_goes_on_behind_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for chat, words in (("c1", "parrot"), ("c2", "one"), ("c3", "two"), ("c4", WORDS)):
        await commit(store, await load(store, key_of(chat)), await mail(store, words, chat=chat), replies=())
        while await store.search.index():
            pass
    await write(store, "UPDATE messages SET created_at = 5 WHERE text = :words", words=WORDS)
    monkeypatch.setattr(retention, "PAGES", 1, raising=False)
    monkeypatch.setattr(retention, "PAGE_ROWS", 1, raising=False)
    assert [await store.retention.search(6, 1) for _ in range(4)] == [0, 0, 0, 1]


async def test_what_becomes_old_when_all_of_the_index_was_looked_at_is_forgotten_at_the_next_look(store: Store) -> None:
    await commit(store, await load(store), await mail(store, WORDS), replies=())
    while await store.search.index():
        pass
    assert await store.retention.search(6, 1) == 0
    await write(store, "UPDATE messages SET created_at = 5")
    assert await store.retention.search(6, 1) == 1 and await found(store, WORDS) == []


async def test_usage_audit_and_references_to_files_go_by_their_age(store: Store) -> None:
    for day in ("2026-01-01", "2026-02-01"):
        await write(
            store,
            """INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write,
               total, cost_nano, priced, updated_at) VALUES ('ses', 'o', 'main', 'm', :day, 1, 1, 1, 1, 1, 1, 1, 1, 1)""",
            day=day,
        )
    for at in (5, 15):
        await write(
            store,
            "INSERT INTO audit (at, who, role, action, target, outcome) VALUES (:at, 'a', 'r', 'x', 't', 'd')",
            at=at,
        )
        await write(store, "INSERT INTO blob_references VALUES ('d', :id, :at)", id=f"ses_{at}", at=at)
    assert await all_of(store.retention.usage, "2026-02-01") == 1
    assert await all_of(store.retention.audit, 10) == 1
    assert await all_of(store.retention.blobs, 10) == 1
    left = await everything(store)
    assert [row["day"] for row in left["usage"]] == ["2026-02-01"] and [row["at"] for row in left["audit"]] == [15]
    assert [row["created_at"] for row in left["blob_references"]] == [15]


def test_a_long_step_is_followed_by_smaller_ones_and_a_short_one_by_larger_ones() -> None:
    assert next_limit(100, 0.5) == 50 and next_limit(FEWEST, 0.5) == FEWEST
    assert next_limit(100, 0.001) == 200 and next_limit(MOST, 0.001) == MOST
    assert next_limit(100, 0.01) == 100


@pytest.mark.parametrize(
    "days",
    [
        {"turn_days": 10},
        {"turn_days": 40, "journal_days": 0},
        {"session_days": 20},
        {"usage_days": 20},
        {"audit_days": 10**9},
    ],
    ids=lambda days: next(iter(days)),
)
def test_times_that_would_make_words_unfindable_are_refused(days: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        RetentionSettings(**days)
