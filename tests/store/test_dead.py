"""Dead letters: each thing once, and an inbound whole."""

from __future__ import annotations

import asyncio

import pytest

from shared.clock import now_ms
from shared.mail import decode_inbound
from shared.store import Store
from shared.store.dead import PAYLOAD_LIMIT
from tests.store.books import ask
from tests.support.pipe import an_inbound, key_of


async def letters(store: Store) -> list[str]:
    return [row["payload"] for row in await ask(store, "SELECT payload FROM dead ORDER BY id")]


async def test_the_same_thing_is_set_aside_once_and_stays_away_when_it_was_dropped(store: Store) -> None:
    async def set_aside(payload: str, ref: str = "evt_1", kind: str = "request") -> bool:
        return await store.dead.set_aside(kind, ref, None, "malformed", "no chat", payload)

    assert sorted(await asyncio.gather(*(set_aside("same") for _ in range(8)))) == [False] * 7 + [True]
    [dead] = await store.dead.all(state="open", limit=10)
    assert await store.dead.close(dead["id"], "dropped")
    assert not await set_aside("same")
    long = "x" * PAYLOAD_LIMIT  # what is cut off counts, too
    assert [await set_aside(*other) for other in (("other",), ("same", "evt_2"), ("same", "evt_1", "mail"))] == [
        True
    ] * 3
    assert await set_aside(long + "a") and await set_aside(long + "b")
    assert len(await letters(store)) == 6


async def test_an_inbound_that_is_refused_is_kept_whole_and_the_chat_is_told_once(store: Store) -> None:
    long = an_inbound("long " * 4000)
    told = await store.dead.refuse(long, key_of(), "too many")
    assert told is not None and told.destination == "to:webhook:c1"
    assert await store.dead.refuse(long, key_of(), "too many") is None  # it was brought again
    assert await store.dead.refuse(an_inbound("further"), key_of(), "too many") is None
    assert await store.dead.refuse(an_inbound(chat="c2"), key_of("c2"), "too many") is not None
    assert [decode_inbound(kept).text for kept in await letters(store)] == [long.text, "further", "hello"]
    [part] = await store.outbox.open_parts("to:webhook:c1", 10)
    assert (part.id, part.text, part.in_reply_to) == (told.part_id, "too many", (long.event_id,))
    assert part.source.user_name is None


async def test_an_inbound_that_is_refused_again_long_after_is_told_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbound = an_inbound()
    assert await store.dead.refuse(inbound, key_of(), "too many") is not None
    monkeypatch.setattr("shared.store.dead.now_ms", lambda: 2**42)
    assert await store.dead.refuse(inbound, key_of(), "too many") is None
    assert len(await letters(store)) == len(await store.outbox.open_parts("to:webhook:c1", 10)) == 1


async def test_a_chat_is_told_again_when_nothing_of_it_was_refused_for_an_hour(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, minute = now_ms(), 60_000

    async def is_told(after_ms: int) -> bool:
        monkeypatch.setattr("shared.store.dead.now_ms", lambda: began + after_ms)
        return await store.dead.refuse(an_inbound(), key_of(), "too many") is not None

    assert [await is_told(at * minute) for at in (0, 59, 117, 178)] == [True, False, False, True]


async def test_a_chat_that_was_told_long_ago_is_told_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await store.dead.refuse(an_inbound(), key_of(), "too many") is not None
    monkeypatch.setattr("shared.store.dead.now_ms", lambda: 2**42)
    assert await store.dead.refuse(an_inbound(), key_of(), "too many") is not None
    assert await store.dead.refuse(an_inbound(), key_of(), "too many") is None
