"""Control messages end by themselves: once, together with their answer, and without a session."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shared.clock import now_ms
from shared.errors import AlreadyDone, MailboxFull
from shared.mail import encode_mail
from shared.messages import Mail, Reply, State
from shared.store import Store
from shared.store.change import Ending
from shared.store.control import ControlCommit
from tests.store.books import TABLES, accept, ask, commit, contents, crowd, load, mail
from tests.support.pipe import an_inbound, control_key, key_of

KEY = control_key(key_of())
DEAD = Ending(State.DEAD, "error", "as told")
WORDS = "canary"


async def control_mail(store: Store, text: str = "/status", chat: str = "c1") -> Mail:
    """A control message that the journal has."""
    inbound = an_inbound(text, chat=chat)
    return Mail((await accept(store, inbound, key=control_key(key_of(chat)))).seq, inbound)


def ending(mail: Mail, *replies: str, ending: Ending | None = None, key: str = KEY) -> ControlCommit:
    return ControlCommit(key, mail, 1, tuple(map(Reply, replies)), ending or Ending())


async def test_a_control_message_ends_with_its_answer_and_leaves_no_session(store: Store) -> None:
    letter = await control_mail(store)
    committed = await store.commit_control(ending(letter, "one", "two"))
    row = await store.journal.find(letter.inbound.id)
    assert row is not None and (row["state"], row["attempts"]) == ("answered", 1)
    parts = await store.outbox.open_parts("to:webhook:c1", 10)
    assert [(part.id, part.text, part.session_key) for part in parts] == [
        (id, text, key_of()) for id, text in zip(committed.outbox, ("one", "two"), strict=True)
    ]
    assert committed.by_destination == {"to:webhook:c1": committed.outbox}
    found = await contents(store)
    assert [table for table in TABLES if found[table]] == ["inbox", "routes", "outbox"]


@pytest.mark.parametrize("how", [Ending(), DEAD, Ending(State.REJECTED, "operator")])
@pytest.mark.parametrize("replies", [(), ("told",)])
@pytest.mark.parametrize("journaled", [True, False])
async def test_a_second_commit_of_the_same_message_changes_nothing(
    store: Store, how: Ending, replies: tuple[str, ...], journaled: bool
) -> None:
    letter = await control_mail(store) if journaled else Mail(10**15, an_inbound("/stop"), journaled=False)
    await store.commit_control(ending(letter, *replies, ending=how))
    before = await contents(store)
    assert (len(before["outbox"]), len(before["dead"])) == (len(replies), how is DEAD)
    for again in (how, Ending(), DEAD):
        with pytest.raises(AlreadyDone):
            await store.commit_control(ending(letter, "again", ending=again))
    assert await contents(store) == before


async def test_of_many_workers_that_end_the_same_message_one_wins(store: Store) -> None:
    await crowd(store)
    letter = await control_mail(store)
    outcomes = await asyncio.gather(
        *(store.commit_control(ending(letter, f"answer {n}")) for n in range(20)), return_exceptions=True
    )
    assert sum(isinstance(outcome, AlreadyDone) for outcome in outcomes) == 19
    assert len(await ask(store, "SELECT id FROM outbox")) == 1


async def test_a_message_that_an_operator_dropped_is_not_ended_again(store: Store) -> None:
    first, second = await control_mail(store), await control_mail(store)
    assert await store.reject_waiting(KEY, second, (), "operator") is not None
    with pytest.raises(AlreadyDone):
        await store.commit_control(ending(second, "answer"))
    await store.commit_control(ending(first, "answer"))
    assert [row["state"] for row in await ask(store, "SELECT state FROM inbox ORDER BY seq")] == [
        "answered",
        "rejected",
    ]


async def test_a_key_whose_messages_have_ended_has_room_for_others(store: Store) -> None:
    letter = an_inbound("/status")
    accepted = await accept(store, letter, limit=1, key=KEY)
    with pytest.raises(MailboxFull):
        await accept(store, an_inbound("/stop"), limit=1, key=KEY)
    await store.commit_control(ending(Mail(accepted.seq, letter)))
    assert (await accept(store, an_inbound("/stop"), limit=1, key=KEY)).seq == 2


async def test_a_control_message_under_another_key_is_not_ended(store: Store) -> None:
    letter = await control_mail(store, chat="c2")
    with pytest.raises(AlreadyDone):
        await store.commit_control(ending(letter, "answer"))
    assert [row["state"] for row in await ask(store, "SELECT state FROM inbox")] == ["pending"]


async def test_what_is_set_aside_is_a_dead_letter_with_its_reason(store: Store) -> None:
    letter = await control_mail(store, "/stop")
    await store.commit_control(ending(letter, "sorry", ending=DEAD))
    [dead] = await ask(store, "SELECT kind, ref, session_key, reason, detail, payload, attempts FROM dead")
    assert dead == {
        "kind": "inbound",
        "ref": letter.inbound.id,
        "session_key": KEY,
        "reason": "error",
        "detail": "as told",
        "payload": encode_mail(letter.inbound).decode(),
        "attempts": 1,
    }


async def test_a_deleted_conversation_takes_its_control_messages_along_and_no_other(store: Store) -> None:
    """Said before the conversation's first turn, sent, buried, set aside and never journaled."""
    early = await control_mail(store, f"/status {WORDS}")
    await store.commit_control(ending(early, f"{WORDS} is early"))
    session = (await commit(store, await load(store), await mail(store, "hello"))).session
    other = await control_mail(store, "/status parrot", chat="c2")
    await store.commit_control(ending(other, "parrot", key=control_key(key_of("c2"))))
    poison = await control_mail(store, f"/stop {WORDS}")
    await store.commit_control(ending(poison, f"{WORDS} failed", ending=DEAD))
    unjournaled = Mail(10**15, an_inbound(f"/stop {WORDS}"), journaled=False)
    await store.commit_control(ending(unjournaled, f"{WORDS} stopped"))
    buried = (await store.outbox.open_parts("to:webhook:c1", 10))[0]
    await store.outbox.bury(buried, "refused", "as told")
    waiting = await control_mail(store, "/status later")
    assert await store.delete(session.id, session.version)
    found = await contents(store)
    assert [table for table, rows in found.items() if WORDS in str(rows)] == []
    assert "parrot" in str(found["inbox"]) and "parrot" in str(found["outbox"])
    assert not (await accept(store, early.inbound, key=KEY)).fresh
    row = await store.journal.find(waiting.inbound.id)
    assert row is not None and (row["state"], "later" in row["payload"]) == ("pending", True)


async def test_a_message_is_ended_at_the_time_of_its_commit(store: Store) -> None:
    before, letter = now_ms(), await control_mail(store)
    await store.commit_control(ending(letter))
    row = await store.journal.find(letter.inbound.id)
    assert row is not None and before <= row["finished_at"] <= now_ms()


async def test_a_fact_that_a_control_message_sets_is_kept_with_its_end_or_not_at_all(store: Store) -> None:
    letter, scope = await control_mail(store), "ses_1"

    def setting(known: str | None) -> ControlCommit:
        return replace(ending(letter, "set"), facts={(scope, "busy_mode"): known})

    await store.commit_control(setting("steer"))
    for known in ("reject", None):  # it has ended: nothing of this is written
        with pytest.raises(AlreadyDone):
            await store.commit_control(setting(known))
    assert await ask(store, "SELECT * FROM facts") == [{"scope": scope, "name": "busy_mode", "value": "steer"}]
    again = await control_mail(store)
    await store.commit_control(replace(ending(again), facts={(scope, "busy_mode"): None}))
    assert await ask(store, "SELECT * FROM facts") == []
