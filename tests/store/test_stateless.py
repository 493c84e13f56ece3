"""Requests that are forgotten when they have ended: their words go, and nothing of anybody else's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.clock import now_ms
from shared.messages import Mail, Reply
from shared.pipeline import Pipeline
from shared.store import Store
from shared.store.change import Change, Commit
from shared.store.stateless import to_be_forgotten
from tests.store.books import ask, commit, load, mail, proof, write
from tests.support.pipe import key_of
from workers.upkeep import stateless

TABLES = ("inbox", "outbox", "sessions", "routes", "facts")


async def rows(store: Store) -> dict[str, list[Any]]:
    """Everything, in an order of its own."""
    return {table: sorted(map(str, await ask(store, f"SELECT * FROM {table}"))) for table in TABLES}


async def a_request(store: Store, chat: str) -> Mail:
    """One that has ended: nothing of it is in a transcript, and it is to be forgotten."""
    letter = await mail(store, f"words of {chat}", chat=chat)
    session = await load(store, key_of(chat))
    change = to_be_forgotten(letter.inbound.id, Change(facts={(session.id, "a fact"): "of the session"}))
    await store.commit(
        Commit(session, key_of(chat), proof(), [letter], [], [Reply(f"answer to {chat}")], change=change)
    )
    return letter


async def test_of_a_message_that_is_no_stateless_request_nothing_is_removed(store: Store) -> None:
    await a_request(store, "c1")
    kept = await mail(store, chat="c2")
    await commit(store, await load(store, key_of("c2")), kept)
    before = await rows(store)
    await store.stateless.forget(kept.inbound.id)
    await store.stateless.forget("nothing")
    assert await rows(store) == before


async def test_a_request_that_ended_is_forgotten_whole_and_no_other_is(store: Store) -> None:
    other = await a_request(store, "c2")
    before = await rows(store)
    mine = await a_request(store, "c1")
    assert sorted(await store.stateless.ended(older_than_ms=0, limit=10)) == sorted([mine.inbound.id, other.inbound.id])
    await store.stateless.forget(mine.inbound.id)
    after = await rows(store)
    [emptied] = await ask(store, "SELECT payload, state FROM inbox WHERE id = :id", id=mine.inbound.id)
    assert emptied == {"payload": "", "state": "answered"}  # a redelivery is still known
    assert {table: [row for row in after[table] if mine.inbound.id not in row] for table in TABLES} == before
    assert await store.stateless.ended(older_than_ms=0, limit=10) == [other.inbound.id]


async def test_a_request_is_due_to_be_forgotten_when_it_ended_so_long_ago(store: Store) -> None:
    began = now_ms()
    letter = await a_request(store, "c1")
    assert await store.stateless.ended(older_than_ms=60_000, limit=10) == []
    assert await store.stateless.ended(older_than_ms=began - now_ms() - 60_000, limit=10) == [letter.inbound.id]


async def test_a_housekeeper_forgets_some_at_a_time_and_looks_again_at_once_while_there_may_be_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stateless, "AT_ONCE", 2)
    monkeypatch.setattr(stateless, "AFTER_MS", -60_000)
    for chat in ("c1", "c2", "c3"):
        await a_request(store, chat)
    duty = stateless.EndedRequests(cast(Pipeline, SimpleNamespace(store=store)))
    assert [await duty.look() for _ in range(2)] == [0.0, stateless.EVERY_SECONDS]
    assert await store.stateless.ended(older_than_ms=-60_000, limit=10) == []


async def test_what_a_request_said_in_another_chat_stays_until_it_is_sent(store: Store) -> None:
    letter = await a_request(store, "c1")
    await write(store, "UPDATE outbox SET platform = 'telegram'")
    await store.stateless.forget(letter.inbound.id)
    [part] = await store.outbox.open_parts("to:webhook:c1", 10)
    assert part.text == "answer to c1"
