"""The suites run on SQLite alone: what they are about lies before and behind the database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers import Databases


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)
