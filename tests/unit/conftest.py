"""`nothing_set` is a place where no file sets anything: what a test sets is all that there is."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
