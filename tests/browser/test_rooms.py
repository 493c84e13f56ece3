"""Schedules, questions and people in a real browser, at desktop and phone width, and without script."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from keyturn.dashboard.access import Role
from shared.person import Person
from shared.reading.person import kept_of_person
from shared.reading.schedules import listed_schedules
from tests.browser.furniture import a_question
from tests.browser.house import House, key, until
from tests.browser.visitors import Guest, Look, a_guest
from tests.store.books import ask

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_schedule_is_added_run_paused_and_removed(guest: Guest, house: House, look: Look) -> None:
    page, name = guest.page, f"Report {look.width[0]}"
    await guest.open("/schedules")
    await page.get_by_label("When", exact=True).fill("every 1d at 09:00 in Europe/Berlin")
    await page.get_by_label("What the agent is asked").fill("Write the report.")
    await page.get_by_label("Name", exact=True).fill(name)
    await guest.press("Add the schedule")
    await guest.says("The schedule is kept.")
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)
    await guest.press("Run now")
    await guest.says("It runs now, beside its own slots.")
    await guest.open("/schedules")
    async with page.expect_navigation():
        await page.get_by_role("link", name=name, exact=True).click()
    await guest.press("Pause")
    await guest.says("No slot runs until it is resumed.")
    await guest.press("Resume")
    await guest.says("The schedule goes on at")
    await guest.press("Remove…")
    await guest.press("Remove it for good")
    await guest.says("are gone")
    assert name not in [one.name for one in await listed_schedules(house.pipe.store, 50)]


async def test_a_question_is_read_and_withdrawn(guest: Guest, house: House, look: Look) -> None:
    tool = f"pay_{look.width[0]}"
    await house.talk("pay it", tool)
    await a_question(house, key(tool), tool=tool, text=f"May I run `{tool}` with 80.00 EUR?")
    page = guest.page
    await guest.open(f"/conversation?key={key(tool)}")
    await guest.says("It waits for a person's answer")
    async with page.expect_navigation():
        await page.get_by_role("link", name="approval 1").click()
    await expect(page.get_by_text("80.00 EUR")).to_have_count(0)
    await guest.press("Show what is asked")
    await guest.says("80.00 EUR")
    await guest.press("Withdraw the question")
    await guest.says("The question is withdrawn.")

    async def has_ended() -> bool:
        [row] = await ask(house.pipe.store, f"SELECT state FROM asks WHERE run_id = 'run_{tool}'")
        return bool(row["state"] != "open")

    await until(has_ended)
    await guest.open("/questions")
    await expect(page.get_by_text(tool)).to_have_count(0)


@pytest.mark.parametrize("script", [True, False], ids=["script", "plain"])
async def test_a_person_is_exported_and_forgotten_after_their_name_was_typed(
    browser: Browser, house: House, look: Look, script: bool
) -> None:
    user = f"{'gina' if script else 'gustav'}{look.width[0]}"
    await house.talk("remember me", user, user=user)
    async with a_guest(browser, house, Look(look.width, script=script)) as guest:
        await guest.enter(Role.ADMIN)
        page = guest.page
        await guest.open("/people")
        await page.get_by_label("Person, as PLATFORM:ID").fill(f"api:{user}")
        await guest.press("Count what is kept")
        await guest.says("Nothing has been changed yet.")
        assert not script or await guest.axe() == []
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Export everything").click()
        assert "remember me" in (await (await download.value).path()).read_text()
        guest.troubles.expected_status.add(409)
        await page.get_by_label("to confirm").fill("api:somebody")
        await guest.press("Forget them for good")
        await guest.says("nothing was done")
        await guest.open("/people")
        await page.get_by_label("Person, as PLATFORM:ID").fill(f"api:{user}")
        await guest.press("Count what is kept")
        await page.get_by_label("to confirm").fill(f"api:{user}")
        await guest.press("Forget them for good")
        await guest.says("They are forgotten.")
        assert not script or await guest.axe() == []
    assert (await kept_of_person(house.pipe.store, Person("api", user))).is_nothing
