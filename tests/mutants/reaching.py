"""A pytest plugin: names the running test to coverage, and writes down how long each one took and which ones failed.

Time in which the test was ready to run and other programs had the processors does not count, so that a test costs the same on a
busy machine.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

SECONDS: dict[str, float] = {}
FAILED: list[str] = []


def kept_waiting() -> float:
    """Seconds that this thread has waited for a processor so far; 0 where the system does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.switch_context(item.nodeid)
    began = time.monotonic() - kept_waiting()
    yield
    SECONDS[item.nodeid] = max(time.monotonic() - kept_waiting() - began, 0.001)
    if measuring is not None:
        measuring.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        FAILED.append(report.nodeid)


def pytest_sessionfinish() -> None:
    if SECONDS:
        ran = Path(os.environ["MUTANTS_REACH"]) / f"ran-{os.getpid()}.json"
        ran.write_text(json.dumps({"seconds": SECONDS, "failed": FAILED}))
