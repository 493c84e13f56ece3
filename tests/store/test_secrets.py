"""A secret that a deployment makes up is the same in all its processes."""

from __future__ import annotations

import asyncio

from shared.store import Store, open_store
from shared.store.secrets import SENDER_KEY


async def test_of_many_processes_that_need_a_secret_first_one_makes_it_and_all_have_it(
    store: Store, database_url: str
) -> None:
    stores = [await open_store(database_url, history_messages=4) for _ in range(6)]
    made = await asyncio.gather(*(one.secrets.of(SENDER_KEY) for one in stores))
    assert len(set(made)) == 1 and len(bytes.fromhex(made[0])) == 32
    assert await store.secrets.of(SENDER_KEY) == made[0] != await store.secrets.of("another")
    for one in stores:
        await one.database.close()
