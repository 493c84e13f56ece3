"""`bench` is a lane worked by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.lane.workbench import Workbench


@pytest.fixture
async def bench(redis_url: str) -> AsyncIterator[Workbench]:
    bench = Workbench(redis_url)
    yield bench
    await bench.close()
