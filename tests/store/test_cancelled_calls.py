"""Calls of the database that are cancelled, at any moment and more than once: no later call gets what was meant for them."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from shared.store import Store
from shared.store.database.postgres import PostgresDatabase
from tests.store.books import ask, raw

ROUNDS = 200
AT_ONCE = 12


@pytest.fixture(autouse=True)
def ends_here(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What cancelled calls left complains when it is collected. Python's parser fails if a later test parses code just then."""
    caplog.set_level("ERROR", "psycopg")  # what is logged is kept, and with it what was left
    yield
    gc.collect()


async def test_a_connection_that_a_cancelled_call_left_in_a_pipeline_is_not_used_again(store: Store) -> None:
    if isinstance(store.database, PostgresDatabase):  # SQLite has no pipelines: there the calls below are all
        async with store.database._pool.connection() as connection:
            await connection.pipeline().__aenter__()  # whoever ends it is cancelled before that
    for number in range(20):
        assert await ask(store, "SELECT CAST(:n AS INTEGER) AS n", n=number) == [{"n": number}]


async def test_a_connection_that_was_given_back_is_not_kept_as_one_in_use(store: Store) -> None:
    """Else each that is ever closed would stay in memory."""
    for number in range(3):
        assert await ask(store, "SELECT CAST(:n AS INTEGER) AS n", n=number) == [{"n": number}]
    assert not isinstance(store.database, PostgresDatabase) or store.database._pool._given == set()


async def test_whatever_is_cancelled_every_later_call_gets_its_own_answer(store: Store) -> None:
    rng = random.Random(7)
    for number in range(ROUNDS):
        tasks = [asyncio.create_task(_two_writes(store)) for _ in range(AT_ONCE)]
        await asyncio.sleep(rng.uniform(0.0, 0.01))
        for _ in range(3):
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await ask(store, "SELECT CAST(:n AS INTEGER) AS n", n=number) == [{"n": number}]


async def _two_writes(store: Store) -> None:
    insert = "INSERT INTO facts (scope, name, value) VALUES ('test', :name, 'v') ON CONFLICT DO NOTHING"
    read = "SELECT COUNT(*) AS n FROM facts WHERE scope = 'test'"
    with suppress(asyncio.CancelledError):
        await store.database.write(raw(insert, name="a"), raw(insert, name="b"))
        await store.database.read(raw(read), raw(read))
