"""Fixtures for attacks. They are made on SQLite alone: what is attacked lies before and beside the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shared.pipeline import Pipeline
from tests.security.receiver import Receiver, receiving
from tests.support.door import Door, open_door
from tests.support.servers import Databases

T = TypeVar("T")
Awaited = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def door(pipe: Pipeline) -> AsyncIterator[Door]:
    async with open_door(pipe) as opened:
        yield opened


@pytest.fixture
async def receiver(pipe: Pipeline) -> AsyncIterator[Receiver]:
    async with receiving(pipe) as opened:
        yield opened


@pytest.fixture
async def in_thread() -> Callable[[Callable[[Awaited], None]], Coroutine[Any, Any, None]]:
    """Runs a property in a thread; what it is given waits there for a coroutine of this loop."""
    loop = asyncio.get_running_loop()

    def awaited(coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    async def run(check: Callable[[Awaited], None]) -> None:
        await asyncio.to_thread(check, awaited)

    return run
