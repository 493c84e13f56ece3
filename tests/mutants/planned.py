"""A pytest plugin: runs the tests in the order of a plan, each with a time limit of its own, and writes down how far it came."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.mutants.forking import RAN

PLAN = "MUTANTS_PLAN"  # a file; not KEYTURN_...: the product refuses settings that it does not know


def limits() -> Mapping[str, float]:
    """Seconds for each test, in the order in which they are to run."""
    read: dict[str, float] = json.loads(Path(os.environ[PLAN]).read_text())
    return read


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    plan = limits()
    order = {test: number for number, test in enumerate(plan)}
    items.sort(key=lambda item: order.get(item.nodeid, len(order)))
    for item in items:
        if item.nodeid in plan:
            item.add_marker(pytest.mark.timeout(plan[item.nodeid]), append=False)


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(f"began {nodeid}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown" or report.failed:
        _write(f"{'failed' if report.failed else 'passed'} {report.nodeid}")


def _write(line: str) -> None:
    with Path(os.environ[RAN]).open("a") as file:
        file.write(line + "\n")
