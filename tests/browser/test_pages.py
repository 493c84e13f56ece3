"""Every page of the dashboard: readable for everybody in light and dark, whole on a phone, by keyboard, and without script."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from keyturn.dashboard.access import Role
from shared.reading.dead_letters import LetterState, dead_letter
from tests.browser.furniture import furnish, led_to
from tests.browser.house import House, key
from tests.browser.visitors import DESKTOP, PHONE, Guest, Look, a_guest

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def paths(house: House) -> dict[str, str]:
    return await furnish(house)


@pytest.fixture
def look() -> Look:
    return Look()


@pytest.mark.parametrize("width", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_axe_finds_nothing_serious_in_light_and_dark_and_nothing_sticks_out(
    browser: Browser, house: House, paths: dict[str, str], width: tuple[int, int]
) -> None:
    found: list[str] = []
    async with a_guest(browser, house, Look(width)) as guest:
        await guest.open("/login")
        found += [f"login {one}" for one in await guest.axe()]
        await guest.enter()
        for name, path in paths.items():
            await guest.open(path)
            found += await _wrong(guest, name)
        for name, (path, button) in led_to(paths).items():
            await guest.open(path)
            await guest.press(button)
            found += await _wrong(guest, name)
    assert found == []


async def _wrong(guest: Guest, name: str) -> list[str]:
    wide = await guest.wide()
    return [f"{name} {one}" for one in await guest.axe()] + ([f"{name} is {wide} px too wide"] if wide else [])


async def test_the_role_view_sees_every_page_without_a_button_that_changes_something(
    browser: Browser, house: House, paths: dict[str, str]
) -> None:
    async with a_guest(browser, house, Look(PHONE)) as guest:
        guest.troubles.expected_status.add(403)  # the settings
        await guest.enter(Role.VIEW)
        for path in paths.values():
            await guest.open(path)
            forms = await guest.page.locator("form[method=post]").evaluate_all("forms => forms.map(f => f.action)")
            assert [action for action in forms if not action.endswith("/logout")] == []


# -- by keyboard


async def test_keys_lead_to_a_conversation_and_back(guest: Guest, paths: dict[str, str]) -> None:
    keyboard, page = guest.page.keyboard, guest.page
    await guest.open("/conversations")
    await keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await keyboard.press("/")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await keyboard.type("state:idle")
    async with page.expect_navigation():
        await keyboard.press("Enter")
    rows = page.locator(".list tbody tr")
    for press in ("j", "j", "k", "j"):
        await keyboard.press(press)
    chosen = rows.nth(1).get_by_role("link").first
    await expect(chosen).to_be_focused()
    wanted = await chosen.inner_text()
    async with page.expect_navigation():
        await keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text(wanted)
    async with page.expect_navigation():
        await keyboard.press("g")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


async def test_a_dead_letter_is_replayed_by_keyboard_alone(guest: Guest, house: House) -> None:
    letter = await house.a_dead_letter("fail by keyboard", "keyboard")
    page = guest.page
    await guest.open("/dead")
    await page.keyboard.press("j")
    await expect(page.get_by_role("link", name=str(letter), exact=True)).to_be_focused()
    async with page.expect_navigation():
        await page.keyboard.press("Enter")
    replay = page.get_by_role("button", name="Replay", exact=True)
    for _ in range(60):
        await page.keyboard.press("Tab")
        if await replay.evaluate("button => button === document.activeElement"):
            break
    await expect(replay).to_be_focused()
    async with page.expect_navigation():
        await page.keyboard.press("Enter")
    assert (await dead_letter(house.pipe.store, letter)).state is LetterState.REPLAYED


async def test_a_focus_survives_what_comes_live(guest: Guest, house: House) -> None:
    await guest.open("/")
    await expect(guest.page.locator("#pulse")).to_have_text("live")
    tile = guest.page.locator("#tile-dead")
    before = await tile.locator("strong").inner_text()
    await tile.focus()
    await house.a_dead_letter("fail live", "focus")
    await expect(tile.locator("strong")).not_to_have_text(before)
    await expect(tile).to_be_focused()


# -- without script


@pytest_asyncio.fixture(loop_scope="module")
async def plain(browser: Browser, house: House) -> AsyncIterator[Guest]:
    """Somebody whose browser runs no script."""
    async with a_guest(browser, house, Look(script=False)) as guest:
        await guest.enter()
        yield guest


async def test_without_script_every_page_is_whole_and_its_forms_work(
    plain: Guest, house: House, paths: dict[str, str]
) -> None:
    for path in paths.values():
        await plain.open(path)
        assert await plain.page.locator("h1").count() == 1
        assert await plain.page.get_by_role("button", name="Copy the command").count() == 0
    await expect(plain.page.get_by_role("link", name="Dead letters", exact=True)).to_be_visible()  # of the menu
    letter = await house.a_dead_letter("fail without script", "plain")
    await plain.open(f"/dead/letter?id={letter}")
    await plain.press("Drop")
    await plain.says("was dropped")
    await plain.open(f"/conversation?key={key('garden')}")
    await plain.press("Pause the chat")
    await plain.says("Paused: chat")
    await plain.press("Resume the chat")
    await plain.press("Show what was said")
    await plain.says("When should I plant tomatoes outside?")
