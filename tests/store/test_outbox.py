"""Parts leave in order, each attempt is written down first, and what is set aside says why."""

from __future__ import annotations

import asyncio

import pytest

from shared.address import Address
from shared.errors import Malformed
from shared.messages import Part, Reply
from shared.store import Store
from shared.store.change import Commit
from tests.store.books import ask, commit, load, mail, proof, write
from tests.support.pipe import key_of

PLACE = "to:webhook:c1"
LEASE, OTHER = "lease-1", "lease-2"


async def parts(store: Store, count: int = 1, chat: str = "c1") -> list[Part]:
    """Replies that were just decided."""
    await commit(
        store, await load(store, key_of(chat)), await mail(store, chat=chat), replies=[f"r{n}" for n in range(count)]
    )
    return await store.outbox.open_parts(f"to:webhook:{chat}", 50)


async def test_parts_are_given_in_order_with_all_that_a_sender_needs(store: Store) -> None:
    letter = await mail(store, thread="t1")
    committed = await commit(store, await load(store), letter, replies=("one", "two"), turn_id="turn_x")
    first, second = await store.outbox.open_parts(PLACE, 10)
    assert (first.id, second.id) == committed.outbox
    assert (first.text, first.part, first.parts, second.text, second.part) == ("one", 1, 2, "two", 2)
    assert (first.source, first.session_key) == (letter.inbound.source, key_of())
    assert first.in_reply_to == (letter.inbound.event_id,)
    assert (first.attempts, first.sending) == (0, False)
    assert first.idempotency_key != second.idempotency_key
    assert [part.id for part in await store.outbox.open_parts(PLACE, 1)] == [first.id]


async def test_a_reply_to_another_chat_waits_there_and_says_what_it_edits(store: Store) -> None:
    there, letter = Address("webhook", "second", "c2", "t2"), await mail(store, thread="t1")
    replies = [Reply("one"), Reply("two", to=there, edits="m7"), Reply("three", to=letter.inbound.source.address)]
    committed = await store.commit(Commit(await load(store), key_of(), proof("turn_x"), [letter], (), replies))
    one, three = await store.outbox.open_parts(PLACE, 10)
    [two] = await store.outbox.open_parts("to:webhook@second:c2", 10)
    assert (one.id, two.id, three.id) == committed.outbox
    assert committed.by_destination == {PLACE: [one.id, three.id], "to:webhook@second:c2": [two.id]}
    assert (two.to, two.edits, two.chat_type, two.answers) == (there, "m7", "other", None)
    assert (one.to, one.edits, one.chat_type) == (letter.inbound.source.address, None, "dm")
    assert three.to == one.to and three.chat_type == "dm"


@pytest.mark.parametrize("to", [Address("", "", "c1"), Address("webhook", "", ""), Address("webhook", "", "x" * 300)])
async def test_an_address_that_is_none_is_refused_and_nothing_is_written(store: Store, to: Address) -> None:
    letter = await mail(store)
    with pytest.raises(Malformed):
        await store.commit(Commit(await load(store), key_of(), proof("turn_x"), [letter], (), [Reply("x", to=to)]))
    assert await store.outbox.open_parts(PLACE, 10) == []


async def test_only_one_attempt_may_begin(store: Store) -> None:
    [part] = await parts(store)
    begun = await asyncio.gather(*(store.outbox.sending(part, f"lease-{n}") for n in range(20)))
    assert begun.count(True) == 1
    [again] = await store.outbox.open_parts(PLACE, 10)
    assert again.sending and again.attempts == 1 and again.idempotency_key == part.idempotency_key
    assert await store.outbox.sending(again, LEASE)


async def test_taking_gives_the_first_part_and_writes_the_attempt_down(store: Store) -> None:
    first, second = await parts(store, 2)
    taken = await store.outbox.take(PLACE, LEASE)
    assert taken == first
    [row, _] = await store.outbox.open_parts(PLACE, 10)
    assert (row.id, row.sending, row.attempts) == (first.id, True, 1)
    assert await store.outbox.take(PLACE, OTHER) is None  # nobody knows yet what became of the first
    await store.outbox.sent(first, "")
    assert await store.outbox.take(PLACE, LEASE) == second
    await store.outbox.failed(second, "503")
    again = await store.outbox.take(PLACE, LEASE)
    assert again is not None and (again.id, again.attempts) == (second.id, 1)
    await store.outbox.sent(second, "")
    assert await store.outbox.take(PLACE, LEASE) is None


async def test_whoever_did_not_hear_that_an_attempt_began_may_say_it_again(store: Store) -> None:
    [part] = await parts(store)
    assert [await store.outbox.take(PLACE, LEASE) for _ in range(3)] == [part] * 3
    [row] = await store.outbox.open_parts(PLACE, 10)
    assert (row.sending, row.attempts) == (True, 1)
    assert [await store.outbox.sending(row, OTHER) for _ in range(3)] == [
        True
    ] * 3  # an attempt that looked at it first
    assert not await store.outbox.sending(row, LEASE)
    [row] = await store.outbox.open_parts(PLACE, 10)
    assert (row.sending, row.attempts) == (True, 2)
    assert await store.outbox.take(PLACE, LEASE) is None


async def test_a_failure_counts_once_and_only_for_the_attempt_that_failed(store: Store) -> None:
    [part] = await parts(store)
    assert await store.outbox.take(PLACE, LEASE) == part
    for _ in range(3):
        await store.outbox.failed(part, "429", asked_to_wait=True)
    [again] = await store.outbox.open_parts(PLACE, 10)
    assert (again.attempts, again.waits, again.counted) == (1, 1, 0)
    assert await store.outbox.take(PLACE, LEASE) == again
    await store.outbox.failed(part, "a late word of the first attempt")
    [row] = await store.outbox.open_parts(PLACE, 10)
    assert (row.sending, row.attempts, row.waits) == (True, 2, 1)
    await store.outbox.failed(again, "502")
    [row] = await store.outbox.open_parts(PLACE, 10)
    assert (row.sending, row.attempts, row.counted) == (False, 2, 1)


async def test_the_oldest_reply_that_waits_may_be_one_that_is_being_sent(store: Store) -> None:
    await parts(store)
    await store.outbox.take(PLACE, LEASE)
    [row] = await ask(store, "SELECT created_at FROM outbox")
    await write(store, "UPDATE outbox SET created_at = created_at - 60000")
    await parts(store, chat="later")
    backlog = await store.overview.counts(10_000)
    assert (backlog["outbox_waiting"], backlog["outbox_oldest"]) == (2, row["created_at"] - 60000)


async def test_the_oldest_message_and_reply_are_known_however_many_wait(store: Store) -> None:
    """The order of an index puts the oldest ones behind the bound of the counts."""
    for chat in ("a1", "a2", "a3", "z"):
        await parts(store, chat=chat)
        await mail(store, chat=chat)
    await write(store, "UPDATE outbox SET created_at = 1000 WHERE destination = (SELECT MAX(destination) FROM outbox)")
    last = "(SELECT MAX(session_key) FROM inbox)"
    await write(store, f"UPDATE inbox SET received_at = 1000 WHERE state = 'pending' AND session_key = {last}")
    found = await store.overview.counts(2)
    assert (found["inbound_waiting"], found["outbox_waiting"]) == (2, 2)
    assert (found["inbound_oldest"], found["outbox_oldest"]) == (1000, 1000)
    [oldest] = await store.overview.oldest_parts(2)
    assert (oldest["platform"], oldest["oldest"]) == ("webhook", 1000)


@pytest.mark.parametrize("scope", ["all", "lane:deliveries", "platform:webhook", "to:webhook:c1"])
async def test_a_reply_that_a_pause_holds_is_not_the_oldest_that_waits_to_be_sent(store: Store, scope: str) -> None:
    await parts(store)
    await write(store, "UPDATE outbox SET created_at = 1000")
    [held] = await store.overview.oldest_parts(10)
    assert held["oldest"] == 1000
    await store.pauses.begin(scope, "ann")
    assert await store.overview.oldest_parts(10) == []
    await parts(store, chat="c2")
    assert len(await store.overview.oldest_parts(10)) == (scope == "to:webhook:c1")
    await store.pauses.end(scope)
    [again] = await store.overview.oldest_parts(10)
    assert again["oldest"] == 1000


async def test_replaying_one_dead_reply_sends_no_other(store: Store) -> None:
    for chat in ("c1", "c2"):
        for part in await parts(store, 2, chat=chat):
            await store.outbox.bury(part, "refused", "403 forbidden")
    letters = await store.dead.all(state="open", limit=10)
    chosen = letters[1]
    assert (await store.dead.send_again(chosen["id"], int(chosen["ref"])))[0]
    rows = await ask(store, "SELECT id, state FROM outbox ORDER BY id")
    assert {row["state"]: row["id"] for row in rows if row["state"] != "buried"} == {"pending": int(chosen["ref"])}


async def test_a_part_is_taken_once_however_many_try(store: Store) -> None:
    [part] = await parts(store)
    taken = await asyncio.gather(*(store.outbox.take(PLACE, f"lease-{n}") for n in range(20)))
    assert [found for found in taken if found is not None] == [part]


async def test_a_sent_part_is_no_longer_open(store: Store) -> None:
    [part] = await parts(store)
    await store.outbox.sending(part, LEASE)
    await store.outbox.sent(part, "msg-7")
    assert await store.outbox.open_parts(PLACE, 10) == []
    assert not await store.outbox.sending(part, LEASE)
    [row] = await ask(store, "SELECT state, receipt, attempts, sent_at, sending_at FROM outbox")
    assert (row["state"], row["receipt"], row["attempts"]) == ("sent", "msg-7", 1)
    assert row["sent_at"] >= row["sending_at"]


async def test_a_failed_part_waits_again_and_a_sent_one_cannot_fail_afterwards(store: Store) -> None:
    [part] = await parts(store)
    await store.outbox.sending(part, LEASE)
    await store.outbox.failed(part, "503")
    [again] = await store.outbox.open_parts(PLACE, 10)
    assert (again.sending, again.attempts) == (False, 1)
    await store.outbox.sending(again, LEASE)
    await store.outbox.sent(again, "m")
    await store.outbox.failed(again, "too late")
    [row] = await ask(store, "SELECT state, reason FROM outbox")
    assert (row["state"], row["reason"]) == ("sent", None)


async def test_an_ambiguous_part_is_flagged_and_stays_open(store: Store) -> None:
    [part] = await parts(store)
    await store.outbox.sending(part, LEASE)
    await store.outbox.ambiguous(part)
    [row] = await ask(store, "SELECT state, ambiguous FROM outbox")
    assert (row["state"], row["ambiguous"]) == ("sending", 1)
    assert [p.id for p in await store.outbox.open_parts(PLACE, 10)] == [part.id]


async def test_a_buried_part_becomes_a_dead_letter(store: Store) -> None:
    first, second = await parts(store, 2)
    await store.outbox.sending(first, LEASE)
    await store.outbox.bury(first, "refused", "403 forbidden")
    assert [part.id for part in await store.outbox.open_parts(PLACE, 10)] == [second.id]
    [dead] = await store.dead.all(state="open", limit=10)
    assert (dead["kind"], dead["ref"], dead["reason"], dead["session_key"]) == (
        "reply",
        str(first.id),
        "refused",
        key_of(),
    )
    assert not await store.outbox.sending(first, LEASE)


async def test_destinations_that_wait_are_found_page_by_page_with_their_first_part(store: Store) -> None:
    firsts = {}
    for n in range(4):
        firsts[f"to:webhook:c{n}"] = (await parts(store, 2, chat=f"c{n}"))[0].id
    done, _ = await store.outbox.open_parts("to:webhook:c3", 10)
    await store.outbox.sent(done, "")
    firsts["to:webhook:c3"] += 1
    page = await store.outbox.waiting_destinations(after="", limit=3)
    rest = await store.outbox.waiting_destinations(after=page[-1][0], limit=3)
    assert dict([*page, *rest]) == firsts and len(page) == 3


async def test_a_session_is_followed_from_a_part_on(store: Store) -> None:
    ids = [part.id for part in await parts(store, 3)]
    await parts(store, 2, chat="other")
    rows = await store.outbox.of_session(key_of(), after=ids[0])
    assert [row["id"] for row in rows] == ids[1:]
    assert [row["id"] for row in await store.outbox.of_session(key_of(), after=0, limit=1)] == ids[:1]


async def test_a_dead_letter_is_dealt_with_once(store: Store) -> None:
    await store.dead.set_aside("request", "evt", None, "malformed", "not JSON", "\0" + "x" * 10_000)
    await store.dead.set_aside("mail", "7", key_of(), "malformed", "bad", "{}")
    newest, oldest = await store.dead.all(state="open", limit=10)
    assert (newest["kind"], oldest["kind"]) == ("mail", "request")
    whole = await store.dead.find(oldest["id"])
    assert whole is not None and len(whole["payload"]) <= 4096 and "\0" not in whole["payload"]
    closed = await asyncio.gather(*(store.dead.close(oldest["id"], "dropped") for _ in range(10)))
    assert closed.count(True) == 1
    assert [row["id"] for row in await store.dead.all(state="dropped", limit=10)] == [oldest["id"]]
    assert await store.dead.find(10**9) is None and not await store.dead.close(10**9, "dropped")
