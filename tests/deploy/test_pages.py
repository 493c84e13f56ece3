"""The guides of deployment: each ends with how to see that it works and how to add a worker, and names what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.settings import PREFIX, Settings
from tests.deploy.documents import ROOT

PAGES = sorted((ROOT / "docs/guides").glob("deploy-*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_guide_ends_with_how_to_see_that_it_works_and_how_to_add_a_worker(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(), re.M)
    assert headings[-2:] == ["How to see that it works", "How to add a worker"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_and_every_setting_that_a_guide_names_is_there(page: Path) -> None:
    text = page.read_text()
    named = {path.rstrip("./") for path in re.findall(r"(?<![\w/.])deploy/[\w./@-]+", text)}
    made = {"deploy/.env", "deploy/keyturn.env", "deploy/redis", "deploy/worker"}  # by the reader; a name in a command
    missing = {path for path in named if not (ROOT / path).exists()}
    assert missing <= made | {"deploy/dashboard"}, missing
    for name in re.findall(rf"{PREFIX}([A-Z_]+)", text):
        assert name.lower().partition("__")[0] in Settings.model_fields, name
