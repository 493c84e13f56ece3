"""What an overview reads: counts that stop at a bound, pages in order; and the audit log."""

from __future__ import annotations

import pytest

from shared.errors import CannotDo
from shared.operating.audit import Action, Operator, audited
from shared.reading.audit import audit_log
from shared.reading.dead_letters import LetterState, dead_letter_page
from shared.reading.deliveries import flagged_parts, waiting_parts
from shared.reading.sessions import page_place, session_page
from shared.store import Store
from tests.store.books import commit, load, mail, write
from tests.support.pipe import key_of

ANN = Operator("ann", "admin")


async def test_counts_stop_at_their_bound(store: Store) -> None:
    for n in range(5):
        await mail(store, chat=f"c{n}")
        await store.dead.set_aside("request", f"r{n}", None, "malformed", "", f"payload {n}")
    counts = await store.overview.counts(3)
    assert (counts["inbound_waiting"], counts["outbox_waiting"], counts["dead_open"]) == (3, 0, 3)
    assert (await store.overview.counts(100))["inbound_waiting"] == 5


async def test_what_waits_is_counted_by_key(store: Store) -> None:
    first = await mail(store, chat="a")
    await mail(store, chat="a")
    await mail(store, chat="b")
    await store.journal.count_attempt(first.inbound.id, 3, "failed")
    rows = {row["session_key"]: row for row in await store.overview.waiting([key_of("a"), key_of("b"), key_of("c")])}
    assert {key: (row["waiting"], row["attempts"]) for key, row in rows.items()} == {
        key_of("a"): (2, 3),
        key_of("b"): (1, 0),
    }
    assert await store.overview.waiting([]) == []


async def test_parts_come_in_pages_by_destination_and_flagged_ones_newest_first(store: Store) -> None:
    for chat in ("b", "a"):
        letter = await mail(store, chat=chat)
        await commit(store, await load(store, key_of(chat)), letter, replies=("one", "two"))
    first = await waiting_parts(store, 3)
    assert [part.destination for part in first] == ["to:webhook:a", "to:webhook:a", "to:webhook:b"]
    last = first[-1]
    [rest] = await waiting_parts(store, 3, (last.destination, last.id))
    assert rest.destination == "to:webhook:b" and rest.id > last.id
    assert await flagged_parts(store, 10) == []
    await write(store, "UPDATE outbox SET ambiguous = 1, state = 'sent'")
    ids = [part.id for part in await flagged_parts(store, 10)]
    assert len(ids) == 4 and ids == sorted(ids, reverse=True)
    assert [part.id for part in await flagged_parts(store, 10, before=ids[1])] == ids[2:]


async def test_destinations_are_listed_with_what_waits_there_and_what_was_given_up_and_is_not_decided(
    store: Store,
) -> None:
    """Beside a part whose letter was dropped, one of another chat, and a letter of another kind about the same number."""
    for chat in ("a", "b", "c"):
        await commit(store, await load(store, key_of(chat)), await mail(store, chat=chat), replies=("one", "two"))
    parts = {chat: await store.outbox.open_parts(f"to:webhook:{chat}", 10) for chat in "abc"}
    for chat in "ab":
        await store.outbox.bury(parts[chat][0], "refused", "no")
    [letter] = [row for row in await store.dead.all(state="open", limit=10) if row["session_key"] == key_of("a")]
    await store.dead.set_aside("mail", str(parts["a"][0].id), key_of("a"), "malformed", "", "x")
    rows = {row["destination"]: row for row in await store.overview.destinations("", 10, 10)}
    assert {place[-1]: (row["waiting"], row["buried"]) for place, row in rows.items()} == {
        "a": (1, 1),
        "b": (1, 1),
        "c": (2, 0),
    }
    [buried] = await store.overview.buried_parts("to:webhook:a", 10, 10)
    assert (buried["id"], buried["letter"]) == (parts["a"][0].id, letter["id"])
    assert [row["id"] for row in await store.overview.buried_parts("to:webhook:b", 10, 10)] == [parts["b"][0].id]
    waiting = await store.overview.waiting_parts("to:webhook:c", 10)
    assert [row["id"] for row in waiting] == [part.id for part in parts["c"]]
    assert await store.dead.close(letter["id"], "dropped")
    rows = {row["destination"]: row for row in await store.overview.destinations("to:webhook:", 10, 10)}
    assert [row["buried"] for row in rows.values()] == [0, 1, 0]
    assert await store.overview.buried_parts("to:webhook:a", 10, 10) == []
    assert [row["destination"] for row in await store.overview.destinations("to:webhook:a", 1, 10)] == ["to:webhook:b"]


async def test_dead_letters_come_in_pages(store: Store) -> None:
    for n in range(5):
        await store.dead.set_aside("request", f"r{n}", None, "malformed", "", f"payload {n}")
    first = await dead_letter_page(store, LetterState.OPEN, 3)
    rest = await dead_letter_page(store, LetterState.OPEN, 3, first[-1].id)
    assert [letter.ref for letter in (*first, *rest)] == ["r4", "r3", "r2", "r1", "r0"]


async def test_sessions_of_one_millisecond_are_all_listed_across_pages(store: Store) -> None:
    for n in range(5):
        await commit(store, await load(store, key_of(f"c{n}")), await mail(store, chat=f"c{n}"))
    await write(store, "UPDATE sessions SET updated_at = 1763427000123")
    seen: list[str] = []
    page = await session_page(store, 2)
    while page:
        seen += [one.session_key for one in page]
        page = await session_page(store, 2, page_place(page[-1]))
    assert sorted(seen) == [key_of(f"c{n}") for n in range(5)]


async def test_an_action_is_written_down_before_it_is_made_and_its_outcome_after(store: Store) -> None:
    async def work() -> str:
        [row] = await audit_log(store, 10)
        assert (row.who, row.role, row.action, row.target, row.outcome) == ("ann", "admin", "release key", "k", "begun")
        return "result"

    assert await audited(store, ANN, Action("release key", "k"), work) == "result"
    [row] = await audit_log(store, 10)
    assert row.outcome == "done"


async def test_an_action_that_fails_is_written_down_with_its_reason(store: Store) -> None:
    async def work() -> None:
        raise CannotDo("it is idle")

    with pytest.raises(CannotDo):
        await audited(store, ANN, Action("release key", "k"), work)
    [row] = await audit_log(store, 10)
    assert row.outcome == "failed: it is idle"


async def test_nothing_is_done_that_cannot_be_written_down(store: Store) -> None:
    await write(store, "DROP TABLE audit")
    made: list[str] = []

    async def work() -> None:
        made.append("done")

    with pytest.raises(Exception, match=r"audit|schema"):
        await audited(store, ANN, Action("release key", "k"), work)
    assert made == []
