"""One browser and one deployment for each module; each test has a context of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from shared.embedded import valkey
from tests.browser.house import House, open_house
from tests.browser.visitors import DESKTOP, PHONE, Guest, Look, a_guest
from tests.support.browser import find_browser
from tests.support.servers import empty_redis

expect.set_options(timeout=60_000)  # a machine may be slow


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=find_browser())
        yield opened
        await opened.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(valkey_server: valkey.Valkey, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    empty_redis(valkey_server.url)
    async with open_house(valkey_server.url, tmp_path_factory.mktemp("house")) as opened:
        yield opened


@pytest.fixture(params=[DESKTOP, PHONE], ids=["desktop", "phone"])
def look(request: pytest.FixtureRequest) -> Look:
    return Look(request.param)


@pytest_asyncio.fixture(loop_scope="module")
async def guest(browser: Browser, house: House, look: Look) -> AsyncIterator[Guest]:
    """Somebody who is logged in as admin."""
    async with a_guest(browser, house, look) as guest:
        await guest.enter()
        yield guest
