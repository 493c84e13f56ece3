"""`store` is a store with its schema in place, once on SQLite and once on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.store import Store, open_store


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    opened = await open_store(database_url, history_messages=4)
    yield opened
    await opened.database.close()
