"""People with a browser: they log in by a link, and whatever their browser complains of fails the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from playwright.async_api import Browser, ConsoleMessage, Dialog, Page, Request, Response

from keyturn.dashboard.access import Role
from tests.browser.house import House

Scheme = Literal["light", "dark"]
DESKTOP, PHONE = (1280, 900), (390, 844)
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
SERIOUS = ("serious", "critical")
# Reports what the policy refused, before any script of the page runs.
WATCH_POLICY = """document.addEventListener("securitypolicyviolation",
  (event) => console.error("policy: " + event.violatedDirective + " " + event.blockedURI + " " + event.sourceFile));"""


@dataclass
class Troubles:
    """What a browser complained of. Answers that a test asks for, such as a 404, are not listed."""

    found: list[str] = field(default_factory=list)
    expected_status: set[int] = field(default_factory=set)

    def watch(self, page: Page) -> None:
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)
        page.on("dialog", self._asked)

    async def _asked(self, dialog: Dialog) -> None:
        self.found.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not self._is_expected(message.text):
            self.found.append(f"{message.type}: {message.text}")

    def _is_expected(self, text: str) -> bool:
        return any(f"status of {status}" in text for status in self.expected_status)

    def _failed(self, request: Request) -> None:
        if not request.url.endswith(
            ("/live", "/export")
        ):  # a page that is left closes its stream; a download leaves none
            self.found.append(f"failed: {request.method} {request.url} {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected_status:
            self.found.append(f"{response.status}: {response.url}")


@dataclass
class Look:
    """How a browser shows pages."""

    width: tuple[int, int] = DESKTOP
    scheme: Scheme = "light"
    script: bool = True


@dataclass
class Guest:
    """Somebody with a page open."""

    house: House
    page: Page
    look: Look
    troubles: Troubles

    async def open(self, path: str) -> None:
        await self.page.goto(self.house.url + path)

    async def enter(self, role: Role = Role.ADMIN, name: str = "ann") -> None:
        """Follow the link that `keyturn login` prints. Without script, the token is typed."""
        token = self.house.token(role, name)
        if self.look.script:
            await self.open(f"/login#{token}")
        else:
            await self.open("/login")
            await self.page.fill("#token", token)
            await self.page.click("button")
        await self.page.wait_for_selector("main#main")

    async def press(self, button: str) -> None:
        """Press a button and wait for the page that it leads to."""
        async with self.page.expect_navigation():
            await self.page.get_by_role("button", name=button, exact=True).first.click()

    async def says(self, text: str) -> None:
        """Wait until the page says something."""
        await self.page.get_by_text(text).first.wait_for()

    async def text(self) -> str:
        return await self.page.inner_text("main")

    async def wide(self) -> int:
        """How many pixels stick out at the side."""
        return int(
            await self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        )

    async def axe(self) -> list[str]:
        """What axe finds serious on this page; for the other colour scheme, only whether it can be read."""
        await self.page.evaluate(AXE)
        found: list[Any] = (await self.page.evaluate("axe.run({resultTypes: ['violations']})"))["violations"]
        await self.page.emulate_media(color_scheme="dark")
        found += (await self.page.evaluate("axe.run({runOnly: ['color-contrast']})"))["violations"]
        await self.page.emulate_media(color_scheme="light")
        return [
            f"{one['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
            for one in found
            if one["impact"] in SERIOUS
            for node in one["nodes"]
        ]


@asynccontextmanager
async def a_guest(browser: Browser, house: House, look: Look) -> AsyncIterator[Guest]:
    """Somebody at the door. What their browser complained of by the end fails the test."""
    width, height = look.width
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=look.scheme,
        java_script_enabled=look.script,
        reduced_motion="reduce",
        has_touch=look.width == PHONE,
    )
    troubles = Troubles()
    try:
        page = await context.new_page()
        page.set_default_timeout(60_000)
        await page.add_init_script(WATCH_POLICY)
        troubles.watch(page)
        yield Guest(house, page, look, troubles)
        assert troubles.found == []
    finally:
        await context.close()
