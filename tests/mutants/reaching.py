"""A pytest plugin: names the running test to coverage, and writes down how long each one took."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

SECONDS: dict[str, float] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.switch_context(item.nodeid)
    began = time.monotonic()
    yield
    SECONDS[item.nodeid] = time.monotonic() - began
    if measuring is not None:
        measuring.switch_context("")


def pytest_sessionfinish() -> None:
    if SECONDS:
        (Path(os.environ["KEYTURN_REACH"]) / f"seconds-{os.getpid()}.json").write_text(json.dumps(SECONDS))
