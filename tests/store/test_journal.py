"""The journal numbers what it accepts, once each, whatever happens at the same time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shared.errors import MailboxFull
from shared.store import Store
from tests.store.books import accept, ask, commit, crowd, load, mail, write
from tests.support.pipe import an_inbound, key_of


async def test_inbounds_of_a_key_are_numbered_from_one_without_gaps(store: Store) -> None:
    accepted = [await accept(store, an_inbound(str(n))) for n in range(4)]
    assert [a.seq for a in accepted] == [1, 2, 3, 4]
    assert {(a.session_key, a.state, a.fresh) for a in accepted} == {(key_of(), "pending", True)}
    assert (await accept(store, an_inbound(chat="c2"))).seq == 1


async def test_fifty_at_once_on_one_key_get_fifty_numbers(store: Store) -> None:
    await crowd(store)
    accepted = await asyncio.gather(*(accept(store, an_inbound(str(n))) for n in range(50)))
    assert sorted(a.seq for a in accepted) == list(range(1, 51))
    assert all(a.fresh for a in accepted)
    pending = await store.journal.pending(key_of(), after=0, limit=100)
    assert [row.seq for row in pending] == list(range(1, 51))


async def test_one_event_delivered_fifty_times_at_once_is_accepted_once(store: Store) -> None:
    await crowd(store)
    inbound = an_inbound("hello", event_id="evt")
    accepted = await asyncio.gather(*(accept(store, inbound) for _ in range(50)))
    assert [a.fresh for a in accepted].count(True) == 1
    assert len({a.seq for a in accepted}) == 1
    assert len(await ask(store, "SELECT id FROM inbox")) == 1


async def test_many_events_delivered_twice_each_at_once_leave_one_row_each(store: Store) -> None:
    await crowd(store)
    inbounds = [an_inbound(str(n), event_id=f"e{n}") for n in range(25)]
    accepted = await asyncio.gather(*(accept(store, inbound) for inbound in inbounds * 2))
    assert [a.fresh for a in accepted].count(True) == 25
    for first, second in zip(accepted[:25], accepted[25:], strict=True):
        assert first.seq == second.seq
    rows = await store.journal.pending(key_of(), after=0, limit=100)
    assert len(rows) == 25 and len({row.seq for row in rows}) == 25
    after = await accept(store, an_inbound("next"))
    assert after.seq > max(row.seq for row in rows)


async def test_an_event_that_two_keys_claim_at_once_belongs_to_one(store: Store) -> None:
    """As when a setting that shapes keys is changed while a platform redelivers."""
    await crowd(store)
    inbound = an_inbound("hello", event_id="evt")
    accepted = await asyncio.gather(*(accept(store, inbound, key=f"agent:main:webhook:dm:k{n}") for n in range(20)))
    assert [a.fresh for a in accepted].count(True) == 1
    assert len({a.session_key for a in accepted}) == 1


async def test_a_known_inbound_is_told_apart_and_keeps_its_number_key_and_state(store: Store) -> None:
    inbound = an_inbound("hello", event_id="evt")
    first = await accept(store, inbound)
    again = await accept(store, replace(inbound, text="changed"), key="agent:main:webhook:dm:elsewhere")
    assert (again.fresh, again.seq, again.session_key) == (False, first.seq, key_of())
    found = await store.journal.find(inbound.id)
    assert found is not None and "hello" in found["payload"]
    assert await store.journal.find("in_unknown") is None


async def test_a_full_mailbox_refuses_until_something_has_ended(store: Store) -> None:
    first = await mail(store, "0")
    second = an_inbound("1")
    await accept(store, second, limit=2)
    with pytest.raises(MailboxFull):
        await accept(store, an_inbound("2"), limit=2)
    assert not (await accept(store, second, limit=2)).fresh  # a redelivery is not refused
    await commit(store, await load(store), first)
    assert (await accept(store, an_inbound("3"), limit=2)).seq == 3
    with pytest.raises(MailboxFull):
        await accept(store, an_inbound("4"), limit=2)
    assert len(await ask(store, "SELECT id FROM inbox")) == 3


async def test_a_full_mailbox_whose_last_message_was_dropped_gives_no_number_twice(store: Store) -> None:
    _, last = [await mail(store, text) for text in ("one", "two")]
    assert await store.reject_waiting(key_of(), last, (), "operator") is not None
    with pytest.raises(MailboxFull):
        await accept(store, an_inbound("three"), limit=2)
    numbers = await ask(store, "SELECT seq FROM inbox ORDER BY seq")
    assert [row["seq"] for row in numbers] == [1, 2]
    assert (await accept(store, an_inbound("three"), limit=3)).seq == 3


async def test_fifty_at_once_never_overfill_a_mailbox(store: Store) -> None:
    await crowd(store)
    outcomes = await asyncio.gather(
        *(accept(store, an_inbound(str(n)), limit=10) for n in range(50)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, MailboxFull)]
    assert len(refused) == 40
    assert [row.seq for row in await store.journal.pending(key_of(), after=0, limit=100)] == list(range(1, 11))


async def test_pending_mail_is_read_in_order_from_a_given_number_on(store: Store) -> None:
    letters = [await mail(store, str(n)) for n in range(5)]
    await commit(store, await load(store), letters[0])
    rows = await store.journal.pending(key_of(), after=2, limit=2)
    assert [(row.seq, row.id) for row in rows] == [(3, letters[2].inbound.id), (4, letters[3].inbound.id)]
    assert await store.journal.pending(key_of("nobody"), after=0, limit=10) == []


async def test_keys_that_wait_are_found_page_by_page(store: Store) -> None:
    for n in range(5):
        await mail(store, chat=f"c{n}")
        await mail(store, chat=f"c{n}")
    first = await store.journal.waiting_keys(after="", limit=3)
    rest = await store.journal.waiting_keys(after=first[-1], limit=3)
    assert [*first, *rest] == [key_of(f"c{n}") for n in range(5)]
    assert await store.journal.waiting_keys(after="", older_than_ms=10**7, limit=3) == []


async def test_a_failed_attempt_is_remembered_until_the_inbound_ends(store: Store) -> None:
    letter = await mail(store)
    await store.journal.count_attempt(letter.inbound.id, 2, "RuntimeError: no")
    [row] = await store.journal.pending(key_of(), after=0, limit=1)
    assert row.attempts == 2
    _, standing = await store.transcript.load(key_of(), letter.inbound.id)
    assert standing is not None and (standing.state, standing.attempts) == ("pending", 2)
    await commit(store, await load(store), letter)
    await store.journal.count_attempt(letter.inbound.id, 9, "too late")
    found = await store.journal.find(letter.inbound.id)
    assert found is not None and (found["attempts"], found["state"], found["reason"]) == (1, "answered", None)


async def test_the_backlog_counts_what_waits(store: Store) -> None:
    empty = await store.overview.counts(10_000)
    assert (empty["inbound_waiting"], empty["outbox_waiting"], empty["dead_open"]) == (0, 0, 0)
    assert empty["inbound_oldest"] is None and empty["outbox_oldest"] is None
    letter = await mail(store)
    await mail(store)
    await commit(store, await load(store), letter, replies=("a", "b"))
    await store.dead.set_aside("request", "r", None, "malformed", "no", "{}")
    backlog = await store.overview.counts(10_000)
    assert (backlog["inbound_waiting"], backlog["outbox_waiting"], backlog["dead_open"]) == (1, 2, 1)
    assert backlog["inbound_oldest"] > 0 and backlog["outbox_oldest"] > 0
    await write(store, "UPDATE dead SET state = 'dropped'")
    assert (await store.overview.counts(10_000))["dead_open"] == 0


async def test_the_inbounds_of_an_event_id_are_found_on_every_platform_newest_first(store: Store) -> None:
    for n, platform in enumerate(("webhook", "api", "telegram")):
        inbound = an_inbound("hello", event_id="evt_7", platform=platform)
        await accept(store, inbound)
        await write(store, "UPDATE inbox SET received_at = :n WHERE id = :id", n=n, id=inbound.id)
    await accept(store, an_inbound(event_id="evt_8"))
    assert [row["platform"] for row in await store.journal.of_event("evt_7")] == ["telegram", "api", "webhook"]
    assert await store.journal.of_event("evt_9") == []
