"""Settings as they come from the environment."""

from __future__ import annotations

import pytest

from shared import settings
from shared.settings import Settings


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    """The settings where these variables are set, named without KEYTURN_."""
    for name, value in variables.items():
        monkeypatch.setenv(f"KEYTURN_{name}", value)
    return settings.load()
