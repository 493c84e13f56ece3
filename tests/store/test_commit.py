"""The commit: all of a turn, or none of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shared.errors import AlreadyDone, Superseded
from shared.mail import decode_inbound
from shared.messages import Entry, Mail, Reply, State
from shared.store import Store
from shared.store.change import Commit, Committed, Ending
from tests.store.books import ask, commit, contents, crowd, load, mail, proof, write
from tests.support.pipe import an_inbound, key_of

UNJOURNALED = 10**15 + 1


async def test_a_new_key_has_an_empty_session_that_the_first_commit_opens(store: Store) -> None:
    fresh, standing = await store.transcript.load(key_of(), "in_unknown")
    assert (fresh.version, fresh.message_count, fresh.done_seq, fresh.history.entries, standing) == (0, 0, 0, (), None)
    letter = await mail(store)
    known = await load(store)
    assert (known.id, known.version) == (fresh.id, 0)
    committed = await commit(store, known, letter, replies=("hi", "there"))
    assert await load(store) == committed.session
    assert (committed.session.version, committed.session.message_count, committed.session.done_seq) == (1, 3, 1)
    assert committed.destination == "to:webhook:c1" and len(committed.outbox) == 2


async def test_a_commit_writes_everything_that_a_trace_shows(store: Store) -> None:
    letter = await mail(store, "hello")
    await commit(store, await load(store), letter, turn_id="turn_x")
    found = await store.journal.find(letter.inbound.id)
    assert found is not None
    assert (found["state"], found["turn_id"], found["attempts"]) == ("answered", "turn_x", 1)
    assert found["finished_at"] >= found["received_at"]
    turn = await store.sessions.turn("turn_x")
    assert turn is not None
    assert (turn["version"], turn["outcome"], turn["worker"], turn["claimed_at"], turn["started_at"]) == (
        1,
        "answered",
        "test",
        1,
        2,
    )
    assert await store.sessions.turn("turn_unknown") is None
    session = await store.sessions.find(key_of())
    assert session is not None and session == await store.sessions.find(session["id"])
    assert await store.sessions.find("nobody") is None
    rows = await store.sessions.messages(session["id"], 10)
    assert [(row["n"], row["role"], row["text"]) for row in rows] == [(1, "user", "hello"), (2, "assistant", "hi")]
    assert rows[0]["inbound_id"] == letter.inbound.id
    [part] = await store.outbox.of_turn("turn_x")
    assert (part["ordinal"], part["state"], part["attempts"]) == (1, "pending", 0)


async def test_a_session_moves_on_by_one_version_per_commit(store: Store) -> None:
    letters = [await mail(store, str(n)) for n in range(3)]
    session = await load(store)
    for version, letter in enumerate(letters, 1):
        session = (await commit(store, session, letter)).session
        assert session.version == version and session == await load(store)
    assert session.done_seq == 3 and session.message_count == 6


async def test_the_window_is_the_end_of_the_history_in_order(store: Store) -> None:
    session = await load(store)
    for n in range(5):
        session = (await commit(store, session, await mail(store, f"q{n}"), replies=(f"a{n}",))).session
    loaded = await load(store)
    assert [entry.text for entry in loaded.history] == ["q3", "a3", "q4", "a4"]  # four rows, as the store was opened
    assert loaded == session and loaded.message_count == 10


@pytest.mark.parametrize("first", [True, False], ids=["new session", "known session"])
async def test_a_superseded_commit_leaves_no_trace(store: Store, first: bool) -> None:
    session = await load(store)
    if not first:
        session = (await commit(store, session, await mail(store, "before"))).session
    letter = await mail(store)
    await commit(store, session, letter)
    before = await contents(store)
    for ending in (Ending(), Ending(State.DEAD, "error", "no")):
        with pytest.raises(Superseded):
            await commit(store, session, letter, replies=("again", "and again"), ending=ending)
    with pytest.raises(Superseded):
        await commit(store, session, Mail(UNJOURNALED, an_inbound("new"), journaled=False))
    assert await contents(store) == before


@pytest.mark.parametrize("first", [True, False], ids=["new session", "known session"])
async def test_of_many_commits_at_once_one_wins(store: Store, first: bool) -> None:
    session = await load(store)
    if not first:
        session = (await commit(store, session, await mail(store, "before"))).session
    letter = await mail(store)
    await crowd(store)
    versions = session.version
    outcomes = await asyncio.gather(
        *(commit(store, session, letter, turn_id=f"turn_race{n}") for n in range(20)), return_exceptions=True
    )
    won = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(won) == 1 and all(isinstance(o, Superseded) for o in outcomes if isinstance(o, BaseException))
    assert await load(store) == won[0].session and won[0].session.version == versions + 1
    assert len(await ask(store, "SELECT id FROM turns WHERE id LIKE :like", like="turn_race%")) == 1
    assert len(await ask(store, "SELECT id FROM outbox")) == versions + 1


async def test_commits_of_different_keys_do_not_disturb_each_other(store: Store) -> None:
    async def one(chat: str) -> None:
        session = await load(store, key_of(chat))
        for n in range(3):
            session = (await commit(store, session, await mail(store, str(n), chat=chat))).session

    await crowd(store)
    await asyncio.gather(*(one(f"c{n}") for n in range(20)))
    for n in range(20):
        session = await load(store, key_of(f"c{n}"))
        assert (session.version, session.done_seq, session.message_count) == (3, 3, 6)


async def test_unjournaled_mail_is_written_down_as_it_ends(store: Store) -> None:
    letter = Mail(UNJOURNALED, an_inbound("hello"), journaled=False)
    committed = await commit(store, await load(store), letter)
    found = await store.journal.find(letter.inbound.id)
    assert found is not None and (found["state"], found["seq"]) == ("answered", UNJOURNALED)
    assert committed.session.done_seq == 0  # the journal's own count is not moved
    assert (await load(store)).version == 1


async def test_unjournaled_mail_that_an_operator_drops_is_written_down_as_rejected_once(store: Store) -> None:
    letter = Mail(UNJOURNALED, an_inbound("hi"), journaled=False)
    rejected = await store.reject_waiting(key_of(), letter, (Reply("dropped"),), "operator")
    assert rejected is not None and rejected.destination == "to:webhook:c1" and len(rejected.outbox) == 1
    [row] = await ask(store, "SELECT * FROM inbox")
    [part] = await ask(store, "SELECT turn_id FROM outbox")
    known = {name: row[name] for name in ("id", "event_id", "platform", "session_key", "seq", "state", "reason")}
    assert known == {
        "id": letter.inbound.id,
        "event_id": letter.inbound.event_id,
        "platform": "webhook",
        "session_key": key_of(),
        "seq": UNJOURNALED,
        "state": "rejected",
        "reason": "operator",
    }
    assert row["turn_id"] == part["turn_id"] and decode_inbound(row["payload"]).text == "hi"
    assert (row["attempts"], row["received_at"]) == (0, letter.inbound.received_at)
    with pytest.raises(AlreadyDone):
        await store.reject_waiting(key_of(), letter, (), "operator")


async def test_unjournaled_mail_that_is_known_is_already_done_and_leaves_no_trace(store: Store) -> None:
    letter = Mail(UNJOURNALED, an_inbound("hello"), journaled=False)
    session = (await commit(store, await load(store), letter)).session
    before = await contents(store)
    with pytest.raises(AlreadyDone):
        await commit(store, session, letter, replies=("again",))
    assert await contents(store) == before


async def test_a_dead_letter_is_part_of_the_commit(store: Store) -> None:
    letter = await mail(store, "poison")
    await commit(store, await load(store), letter, replies=("sorry",), ending=Ending(State.DEAD, "error", "why"))
    found = await store.journal.find(letter.inbound.id)
    assert found is not None and (found["state"], found["reason"]) == ("dead", "error")
    [dead] = await store.dead.all(state="open", limit=10)
    assert (dead["kind"], dead["ref"], dead["reason"], dead["detail"]) == ("inbound", letter.inbound.id, "error", "why")
    whole = await store.dead.find(dead["id"])
    assert whole is not None and "poison" in whole["payload"]


async def test_a_commit_that_cannot_be_kept_takes_none_of_those_written_with_it_along(store: Store) -> None:
    """They are one statement each for all of them; what is wrong with one is still only its own."""
    chats = [f"c{number}" for number in range(8)]
    sessions = {}
    for chat in chats:
        sessions[chat] = (await commit(store, await load(store, key_of(chat)), await mail(store, chat=chat))).session
    letters = {chat: Mail(UNJOURNALED, an_inbound("next", chat=chat), journaled=False) for chat in chats}
    sessions["c3"] = (await commit(store, sessions["c3"], letters["c3"])).session  # so that it is known already
    await commit(store, sessions["c5"], await mail(store, chat="c5"))  # so that what we know of it is stale
    outcomes = await asyncio.gather(
        *(commit(store, sessions[chat], letters[chat]) for chat in chats), return_exceptions=True
    )
    kinds = [type(outcome).__name__ for outcome in outcomes]
    assert kinds == ["Committed"] * 3 + ["AlreadyDone", "Committed", "Superseded"] + ["Committed"] * 2
    said = {chat: [entry.text for entry in (await load(store, key_of(chat))).history].count("next") for chat in chats}
    assert said == {**dict.fromkeys(chats, 1), "c5": 0}


@pytest.mark.parametrize("first", [True, False])
async def test_a_commit_with_mail_that_was_dropped_is_superseded_and_takes_no_other_along(
    store: Store, first: bool
) -> None:
    """All of them are written together."""
    chats = [f"c{n}" for n in range(5)]
    if not first:
        await asyncio.gather(*[commit(store, await load(store, key_of(c)), await mail(store, chat=c)) for c in chats])
    letters = {chat: [await mail(store, text, chat=chat) for text in ("one", "two")] for chat in chats}
    sessions = {chat: await load(store, key_of(chat)) for chat in chats}
    dropped = letters["c2"][1]
    assert await store.reject_waiting(key_of("c2"), dropped, (), "operator") is not None
    answers = await asyncio.gather(
        *(commit(store, sessions[chat], *letters[chat]) for chat in chats), return_exceptions=True
    )
    assert [isinstance(answer, Superseded) for answer in answers] == [chat == "c2" for chat in chats]
    states = [row["state"] for letter in letters["c2"] if (row := await store.journal.find(letter.inbound.id))]
    assert states == ["pending", "rejected"]
    again = await commit(store, await load(store, key_of("c2")), letters["c2"][0])
    assert again.session.version == sessions["c2"].version + 1


async def test_of_a_drop_and_a_commit_that_end_a_message_together_one_wins(store: Store) -> None:
    await crowd(store)
    for n in range(40):
        one, two = await mail(store, f"one {n}"), await mail(store, f"two {n}")
        session = await load(store)
        committed, dropped = await asyncio.gather(
            commit(store, session, one, two),
            store.reject_waiting(key_of(), two, [Reply("dropped")], "operator"),
            return_exceptions=True,
        )
        row = await store.journal.find(two.inbound.id)
        assert row is not None
        if isinstance(committed, Superseded):
            assert (row["state"], dropped is not None) == ("rejected", True)
            await commit(store, await load(store), one)
        else:
            assert isinstance(committed, Committed)
            assert (row["state"], dropped) == ("merged", None)


async def test_mail_that_is_merged_ends_together(store: Store) -> None:
    letters = [await mail(store, str(n)) for n in range(3)]
    committed = await commit(store, await load(store), *letters)
    assert committed.session.done_seq == 3
    found = [await store.journal.find(letter.inbound.id) for letter in letters]
    assert [row and row["state"] for row in found] == ["answered", "merged", "merged"]
    [part] = await store.outbox.open_parts("to:webhook:c1", 10)
    assert part.in_reply_to == tuple(letter.inbound.event_id for letter in letters)


@pytest.mark.parametrize("text", ["", "naïve 你好 🙂", "a\nb\tc", "'; DROP TABLE inbox; --", ":name %(x)s %s {}"])
async def test_text_is_kept_as_it_is(store: Store, text: str) -> None:
    letter = await mail(store, text)
    await commit(store, await load(store), letter, replies=(f"re {text}",))
    assert [entry.text for entry in (await load(store)).history] == [text, f"re {text}"]
    [part] = await store.outbox.open_parts("to:webhook:c1", 10)
    assert part.text == f"re {text}"


@pytest.mark.parametrize("text", ["nul \0 nul", "half \ud83d half"], ids=["nul", "surrogate"])
async def test_what_a_database_cannot_keep_is_replaced_and_the_rest_stays(store: Store, text: str) -> None:
    """An agent may answer anything; a turn must not fail, nor the writer die, for one odd character."""
    letter = await mail(store)
    session = await load(store)
    entries = (Entry("user", "hello", letter.inbound.id), Entry("assistant", text))
    await store.commit(Commit(session, key_of(), proof(), [letter], entries, (Reply(text),)))
    clean = text.replace("\0", "\ufffd").replace("\ud83d", "\ufffd")
    answer = (await load(store)).history[-1]
    [part] = await store.outbox.open_parts("to:webhook:c1", 10)
    assert {answer.text, part.text} <= {clean, text}
    await store.journal.count_attempt((await mail(store)).inbound.id, 1, text)
    await store.dead.set_aside("request", "r", None, "malformed", text, text)


async def test_sessions_are_listed_by_their_last_activity(store: Store) -> None:
    for n, chat in enumerate(("new", "old", "newest")):
        session = (await commit(store, await load(store, key_of(chat)), await mail(store, chat=chat))).session
        at = {"new": 2, "old": 1, "newest": 3}[chat]
        await write(store, "UPDATE sessions SET updated_at = :at WHERE id = :id", at=at, id=session.id)
        assert len(await store.sessions.listed(10)) == n + 1
    assert [row["session_key"] for row in await store.sessions.listed(2)] == [key_of("newest"), key_of("new")]


@pytest.mark.parametrize("version", [0, 7])
async def test_only_who_read_the_version_in_force_may_commit(store: Store, version: int) -> None:
    session = (await commit(store, await load(store), await mail(store))).session
    with pytest.raises(Superseded):
        await commit(store, replace(session, version=version), await mail(store))
    with pytest.raises(Superseded):
        await commit(store, replace(session, id="ses_other"), await mail(store))
    assert (await load(store)).version == 1
