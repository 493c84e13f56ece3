"""A pytest plugin: notes what each test reaches and how long it takes, and keeps that after every file of tests.

It names the running test to coverage. Time in which the test was ready to run and other programs had the processors does not
count, so that a test costs the same on a busy machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from tests.mutants.measuring import DIRECTORY, keep, kept_sources

SECONDS: dict[str, float] = {}
FAILED: set[str] = set()  # without any mutant: they would tell nothing
SOURCES = kept_sources()  # as they are imported


def kept_waiting() -> float:
    """Seconds that this thread has waited for a processor so far; 0 where the system does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    measuring = coverage.Coverage.current()
    assert measuring is not None, "started by `coverage run`"
    measuring.switch_context(item.nodeid)
    began = time.monotonic() - kept_waiting()
    yield
    SECONDS[item.nodeid] = max(time.monotonic() - kept_waiting() - began, 0.001)
    measuring.switch_context("")
    if nextitem is None or nextitem.path != item.path:
        passed = {test: spent for test, spent in SECONDS.items() if test not in FAILED}
        keep(item.nodeid.partition("::")[0], measuring.get_data(), Path(os.environ[DIRECTORY]), SOURCES, passed)
        SECONDS.clear()
        FAILED.clear()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        FAILED.add(report.nodeid)
