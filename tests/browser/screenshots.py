"""`./run screenshots [DIRECTORY]`: a picture of every page, at desktop and phone width, in light and dark."""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
from pathlib import Path
from typing import get_args

from playwright.async_api import async_playwright

from keyturn.dashboard.watch import SAMPLES, Sample
from tests.browser.furniture import furnish, led_to
from tests.browser.house import open_house
from tests.browser.visitors import DESKTOP, PHONE, Guest, Look, Scheme, a_guest
from tests.support.browser import LEFT_OUT, find_browser
from tests.support.servers import running_valkey

WIDTHS = {"desktop": DESKTOP, "phone": PHONE}
README_PICTURE = Path(__file__).parents[2] / "docs/pictures/dashboard.png"


async def take(directory: Path) -> int:
    """Write the pictures, and say how many there are."""
    taken = 0
    with tempfile.TemporaryDirectory() as place, running_valkey() as valkey:
        async with open_house(valkey.url, Path(place)) as house, async_playwright() as playwright:
            paths = await furnish(house)
            house.desk.watch.samples.extend(_an_hour())
            browser = await playwright.chromium.launch(executable_path=find_browser())
            for name, width in WIDTHS.items():
                for scheme in get_args(Scheme):
                    async with a_guest(browser, house, Look(width, scheme)) as guest:
                        taken += await _pictures(guest, paths, directory / f"{name}-{scheme}")
            async with a_guest(browser, house, Look((1280, 860))) as guest:
                await guest.enter()
                await guest.open("/")
                await guest.page.locator("#pulse.live").wait_for()
                await guest.page.screenshot(path=README_PICTURE)
            await browser.close()
    return taken


async def _pictures(guest: Guest, paths: dict[str, str], directory: Path) -> int:
    await guest.open("/login")
    await guest.page.screenshot(path=directory / "login.png")
    await guest.enter()
    for name, path in paths.items():
        await guest.open(path)
        if name == "overview":
            await guest.page.locator("#pulse.live").wait_for()
        await guest.page.screenshot(path=directory / f"{name}.png", full_page=True)
    for name, (path, button) in led_to(paths).items():
        await guest.open(path)
        await guest.press(button)
        await guest.page.screenshot(path=directory / f"{name}.png", full_page=True)
    await guest.open("/people")
    await guest.page.fill("#person", "api:u1")
    await guest.press("Count what is kept")
    await guest.page.screenshot(path=directory / "person.png", full_page=True)
    return 2 + len(paths) + len(led_to(paths))


def _an_hour() -> list[Sample]:
    """An hour of work for the charts, the same each time."""
    busy = [3 + 2 * math.sin(n / 17) + math.sin(n / 3.1) for n in range(SAMPLES)]
    return [Sample(max(0, int(x - 4)), int(x), int(2 * x), round(max(0.0, x * 1.3), 1)) for x in busy]


def main() -> None:
    if find_browser() is None:
        sys.exit(LEFT_OUT)
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots")
    print(f"{asyncio.run(take(directory))} pictures in {directory}/, and {README_PICTURE.name} for the README")


if __name__ == "__main__":
    main()
