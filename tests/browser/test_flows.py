"""What operators do all day, in a real browser at desktop and phone width: watch, follow, replay, stop, pause, delete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import expect

from shared.operating.pauses import resume
from shared.reading.audit import audit_log
from shared.reading.dead_letters import LetterState, dead_letter, dead_letters
from shared.reading.keys import KeyPhase, state_of_key
from shared.reading.pauses import pauses_now
from tests.browser.house import PLATFORM, House, key, until
from tests.browser.visitors import PHONE, Guest, Look

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def nothing_stays_paused(house: House) -> AsyncIterator[None]:
    yield
    for held in await pauses_now(house.pipe):
        await resume(house.pipe, held.scope)


async def phase(house: House, chat: str) -> KeyPhase:
    return (await state_of_key(house.pipe.turns, key(chat))).state


def name(look: Look) -> str:
    """A chat of this test's own."""
    return "phone" if look.width == PHONE else "desktop"


async def test_a_link_with_a_token_logs_in_once(guest: Guest) -> None:
    assert "#" not in guest.page.url
    await expect(guest.page.get_by_role("heading", name="Overview")).to_be_visible()
    assert await guest.wide() == 0


async def test_a_message_appears_live_and_leads_to_its_trace(guest: Guest, house: House, look: Look) -> None:
    await guest.open("/")
    await expect(guest.page.locator("#pulse")).to_have_text("live")
    chat = f"live-{name(look)}"
    await house.talk("hello there", chat)
    row = guest.page.locator("#recent li").filter(has_text=chat)
    await expect(row).to_be_visible()  # nobody has loaded the page again
    await row.get_by_role("link").click()
    await guest.press("Show what was said")
    await guest.says("You said: hello there")
    await guest.page.get_by_role("link", name="trace").first.click()
    await guest.says("Timeline")
    text = await guest.text()
    assert "answered" in text and "committed" in text and await guest.wide() == 0


async def test_a_dead_letter_is_read_and_replayed(guest: Guest, house: House, look: Look) -> None:
    letter = await house.a_dead_letter("fail once", f"dead-{name(look)}")
    await guest.open("/dead")
    await guest.page.get_by_role("link", name=str(letter), exact=True).click()
    await guest.press("Show the payload")
    await guest.says("fail once")
    house.agent.failing = False
    try:
        await guest.press("Replay")
        await guest.says(f"Dead letter {letter} runs again.")
    finally:
        house.agent.failing = True
    assert (await dead_letter(house.pipe.store, letter)).state is LetterState.REPLAYED


async def test_a_dead_letter_is_edited_and_runs_as_a_new_message_at_the_end(
    guest: Guest, house: House, look: Look
) -> None:
    chat = f"edit-{name(look)}"
    letter = await house.a_dead_letter("fail with a typo", chat)
    await house.talk("said since", chat)
    await guest.open(f"/dead/letter?id={letter}")
    await guest.press("Show the payload")
    await guest.page.get_by_label("What the message says instead").fill("without a typo")
    await guest.press("Run this as a new message at the end")
    await guest.says("runs as a new one at the end of its line")
    rows = ["said since", "You said: said since", "without a typo", "You said: without a typo"]

    async def is_answered() -> bool:
        return (await house.rig.transcript(key(chat)))[-4:] == rows

    await until(is_answered)
    assert "fail with a typo" in (await dead_letter(house.pipe.store, letter)).payload


async def test_hundreds_are_replayed_in_bulk_after_a_dry_run(guest: Guest, house: House, look: Look) -> None:
    reason, count = f"bulk {name(look)}", 20 if look.width == PHONE else 500
    first = await house.say("template", f"bulk-{name(look)}")
    await house.ended(first)
    row = await house.pipe.store.journal.find(first.id)
    assert row is not None
    about = row["session_key"], reason, "", row["payload"]
    await asyncio.gather(*(house.pipe.store.dead.set_aside("inbound", f"{reason} {n}", *about) for n in range(count)))
    await guest.open("/dead")
    await guest.page.get_by_label("Reason").select_option(reason)
    await guest.press("Count what a replay would run")
    await guest.says(f"Dry run: replay {count} dead letters")
    assert (
        len([one for one in await dead_letters(house.pipe.store, LetterState.OPEN, 1000) if one.reason == reason])
        == count
    )
    await guest.press(f"Replay these {count}")
    await guest.says(f"{count} letters were replayed.")
    assert not [one for one in await dead_letters(house.pipe.store, LetterState.OPEN, 1000) if one.reason == reason]


async def test_a_running_turn_is_stopped(guest: Guest, house: House, look: Look) -> None:
    chat = f"stop-{name(look)}"
    message = await house.say("wait for me", chat)

    async def runs() -> bool:
        return await phase(house, chat) is KeyPhase.LEASED

    await until(runs)
    await guest.open("/conversations?q=state:leased")
    await guest.page.get_by_role("link", name=key(chat)).click()
    await guest.says("A worker runs its turn")
    await guest.press("Stop the turn")
    await guest.says("The running turn was asked to end")
    assert await house.ended(message) != "pending"


async def test_a_platform_is_paused_and_resumed_and_the_banner_says_so(guest: Guest, house: House, look: Look) -> None:
    await guest.open("/pauses")
    await guest.press("Pause API")
    banner = guest.page.locator(".banner")
    await guest.says(f"Paused: platform:{PLATFORM}. Messages are accepted and wait.")
    assert "nothing yet" in await guest.text() and await guest.axe() == [] and await guest.wide() == 0
    chat = f"pause-{name(look)}"
    message = await house.say("held", chat)

    async def waits() -> bool:
        return await phase(house, chat) is KeyPhase.PAUSED

    await until(waits)
    await guest.open("/")
    await expect(banner).to_contain_text(f"Paused: platform {PLATFORM}. By ann")
    await expect(banner).to_contain_text("Behind it: 1 conversation")
    await expect(guest.page.locator("#verdict")).to_contain_text("A pause is in force, and 1 key waits behind it.")
    assert await guest.axe() == [] and await guest.wide() == 0
    await guest.press("Resume")
    await guest.says("1 key was woken")
    assert await house.ended(message) == "answered"
    assert await pauses_now(house.pipe) == () and await banner.count() == 0
    actions = [(row.who, row.action, row.target) for row in await audit_log(house.pipe.store, 2)]
    assert actions == [("ann", "resume", f"platform:{PLATFORM}"), ("ann", "pause", f"platform:{PLATFORM}")]


async def test_a_conversation_is_paused_on_its_own_page(guest: Guest, house: House, look: Look) -> None:
    chat = f"one-{name(look)}"
    await house.talk("hello", chat)
    await guest.open(f"/conversation?key={key(chat)}")
    await guest.press("Pause the conversation")
    message = await house.say("held", chat)

    async def waits() -> bool:
        return await phase(house, chat) is KeyPhase.PAUSED

    await until(waits)
    await guest.page.reload()
    await guest.says("1 message waits until somebody resumes it.")
    await guest.press("Resume the conversation")
    assert await house.ended(message) == "answered"


async def test_a_session_is_deleted_after_a_question(guest: Guest, house: House, look: Look) -> None:
    chat = f"gone-{name(look)}"
    await house.talk("forget me", chat)
    await guest.open(f"/conversation?key={key(chat)}")
    async with guest.page.expect_navigation():
        await guest.page.locator(".facts a[href^='/session']").click()
    await guest.press("Delete…")
    await guest.says("Delete this session?")
    assert await house.pipe.store.sessions.find(key(chat)) is not None
    await guest.press("Delete it for good")
    await guest.says("The session and its 2 rows are gone.")
    assert await house.rig.transcript(key(chat)) == []


async def test_a_command_beside_a_button_is_copied(guest: Guest, house: House) -> None:
    await guest.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await guest.open("/pauses")
    box = guest.page.locator(".offers li").first
    await box.get_by_role("button", name="Copy the command").click()
    assert await guest.page.evaluate("navigator.clipboard.readText()") == "keyturn keys pause all"
