"""Strangers' text full of HTML and script, in every field and on every page, in a real browser: none of it runs."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.async_api import Browser, expect

from keyturn.dashboard.app import PAGES
from tests.browser.furniture import ONE_OF_SEVERAL
from tests.browser.house import House
from tests.browser.visitors import Guest, Look, a_guest
from tests.security.test_dashboard_text import QUESTION, SCHEDULE, fill

pytestmark = pytest.mark.asyncio(loop_scope="module")
RUN = "window.ran=1;document.title='ran'"
HOSTILE = (
    f"<script>{RUN}</script>"
    f'"\'><img src=x onerror="{RUN}"><svg onload="{RUN}"></svg>'
    f"</textarea></title></style></pre></code></script><script>{RUN}</script>"
    f'<iframe srcdoc="<script>parent.ran=1</script>"></iframe><a href="javascript:{RUN}" id=trap>press</a>'
    f"<form action=https://elsewhere.example><button>Resume</button></form><base href=https://elsewhere.example>"
    "<meta http-equiv=refresh content=0;url=https://elsewhere.example><style>main{display:none}</style>"
    "{{ 7 * 7 }} \u202e\u200b]]><!--"
)


async def harmless(guest: Guest) -> None:
    """Nothing ran, nothing was made of the text, and the page is still ours."""
    page = guest.page
    assert page.url.startswith(guest.house.url)
    assert await page.evaluate("[window.ran === undefined, document.title.endsWith('Keyturn')]") == [True, True]
    made = "img, iframe, base, style, meta[http-equiv], #trap, a[href^='javascript:'], form[action^='http'], [onload]"
    assert await page.locator(made).count() == 0
    await expect(page.locator("main")).to_be_visible()


async def test_nothing_that_a_stranger_wrote_runs_on_any_page(browser: Browser, house: House) -> None:
    short = HOSTILE[:120]
    said = await house.talk(HOSTILE, short, user_name=HOSTILE, chat_name=HOSTILE, thread=short)
    key = said.session_key
    store = house.pipe.store
    session = await store.sessions.find(key)
    assert session is not None
    row = await store.journal.find(said.id)
    assert row is not None
    await store.dead.set_aside("inbound", HOSTILE, key, HOSTILE, f"ValueError: {HOSTILE}", row["payload"])
    await fill(house.rig, HOSTILE)
    paths = [room.path for room in PAGES if room.path not in ONE_OF_SEVERAL]
    paths += [
        f"/conversation?key={quote(key)}",
        f"/conversations?q=key:{quote(HOSTILE.split()[0])}",
        f"/messages?id={said.id}",
        f"/session?id={session['id']}",
        f"/sessions?q={quote(HOSTILE)}",
        "/dead/letter?id=1",
        f"/schedule?id={SCHEDULE}",
        f"/question?id={QUESTION}",
        "/deliveries?show=flagged",
        "/usage?by=model",
        "/usage?by=user",
    ]
    async with a_guest(browser, house, Look()) as guest:
        await guest.enter(name=HOSTILE)
        for path in paths:
            await guest.open(path)
            await harmless(guest)
        for path, button in (
            (f"/conversation?key={quote(key)}", "Show what was said"),
            (f"/session?id={session['id']}", "Show what was said"),
            (f"/session?id={session['id']}", "Delete…"),
            (f"/schedule?id={SCHEDULE}", "Show what the agent is asked"),
            (f"/schedule?id={SCHEDULE}", "Remove…"),
            (f"/question?id={QUESTION}", "Show what is asked"),
            ("/dead/letter?id=1", "Show the payload"),
        ):
            await guest.open(path)
            await guest.press(button)
            await harmless(guest)
        await expect(guest.page.get_by_label("What the message says instead")).to_have_value(
            HOSTILE
        )  # as it is: it is sent back to us
        await guest.open("/")
        await expect(guest.page.locator("#pulse")).to_have_text("live")  # what came live is on the page now
        await house.talk(HOSTILE, "later")
        await expect(guest.page.locator("#recent li").filter(has_text="dm:later")).to_be_visible()
        await harmless(guest)
        guest.troubles.expected_status.update((404, 409))
        led = (
            "/messages?id=",
            "/conversation?key=",
            "/session?id=",
            "/schedule?id=",
            "/question?id=",
            "/dead?state=",
            "/",
        )
        for path in led:
            await guest.open(path + quote(HOSTILE, safe=""))
            await harmless(guest)
        await guest.open("/schedules")
        for field in ("when", "text", "to", "name"):
            await guest.page.fill(f"#{field}", HOSTILE[:60])
        await guest.press("Add the schedule")
        await expect(guest.page.get_by_role("alert")).to_contain_text("Nothing was added")
        await expect(guest.page.get_by_label("When", exact=True)).to_have_value(HOSTILE[:60])
        await harmless(guest)
        await guest.open("/people")
        await guest.page.fill("#person", f"api:{HOSTILE[:400]}")
        await guest.press("Count what is kept")
        await guest.says("Nothing is kept of them.")
        await harmless(guest)
