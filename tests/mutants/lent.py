"""A pytest plugin: tests use the servers that the mutants' judge has started, instead of starting their own for each mutant."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import servers

# Not KEYTURN_...: the product refuses settings that it does not know.
VALKEY, POSTGRES = "MUTANTS_VALKEY", "MUTANTS_POSTGRES"


def _lent(name: str) -> Any:
    @contextmanager
    def running() -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(url=os.environ[name])

    return running


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before tests/conftest.py takes the functions from their module."""
    servers.running_valkey = _lent(VALKEY)
    servers.running_postgres = _lent(POSTGRES)
