"""SECURITY.md is true as far as a test can see: what it names is there, and no area is left out."""

from __future__ import annotations

import re
from pathlib import Path

from producers.server import body, connection, unverified

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
AREAS = (
    "Verification",
    "Replay",
    "Source identity and access",
    "What goes out without a question",
    "Prompt boundary",
    "SSRF",
    "RQ trust",
    "Redis",
    "Secrets",
    "Dashboard",
    "Quotas",
    "Privacy",
    "Tenant isolation",
    "Agent process",
    "Supply chain",
    "Container",
)
STATES = ("met", "partly", "planned", "operator", "not done", "not claimed", "met, by not fetching")


def test_every_area_has_a_row_and_every_row_a_state() -> None:
    requirements = PAGE.partition("## Requirements")[2]
    assert tuple(re.findall(r"^### (.+)$", requirements, re.M)) == AREAS
    rows = [row.split(" | ") for row in requirements.splitlines() if row.startswith("| ") and "---" not in row]
    stated = [row for row in rows if row[0] != "| requirement"]
    assert len(stated) > 35
    assert {row[1] for row in stated} <= set(STATES)


def test_what_is_met_names_a_test_and_every_test_named_exists() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"def (test_\w+)\(", tests))
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) > 60 and set(named) <= there, set(named) - there
    unproven = [row for row in PAGE.splitlines() if " | met | " in row and "`test_" not in row]
    assert [row.split(" | ")[0] for row in unproven] == [
        "| command lines never, the environment yes",  # seen with the canaries, two rows above
        "| no installation while running",
    ]


def test_the_budgets_on_the_page_are_those_in_force() -> None:
    assert (connection.HEAD_BYTES, connection.HEAD_SECONDS) == (64 * 1024, 5)
    assert (body.KEEP_UP_BYTES, body.KEEP_UP_SECONDS) == (64 * 1024, 5)
    for number in (connection.RESTING_PER_ADDRESS, unverified.PER_ADDRESS):
        assert f"{number} of one address" in PAGE
    assert f"{unverified.IN_ALL} in all" in PAGE
    assert f"{unverified.BYTES_IN_ALL // 2**20} MB in all" in PAGE
