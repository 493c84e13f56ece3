"""The browser that the dashboard's tests are driven with, if this machine has one."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
VARIABLE = "BROWSER_TESTS"  # `required`: it is an error that there is no browser
LEFT_OUT = "tests/browser was left out: no Chromium was found. On Debian: apt-get install --no-install-recommends chromium-headless-shell"


def find_browser() -> str | None:
    """Where the browser is; None: this machine has none that we know."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


def is_required() -> bool:
    """Whether the tests must not be left out."""
    return os.environ.get(VARIABLE) == "required"
