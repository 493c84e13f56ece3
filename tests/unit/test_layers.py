"""Data flows one way: producers -> shared <- workers; keyturn wires them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    "shared": {"producers", "workers", "keyturn", "tests"},
    "producers": {"workers", "keyturn", "tests"},
    "workers": {"producers", "keyturn", "tests"},
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_a_package_imports_only_what_it_may(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        tops = {name.partition(".")[0] for name in imports(path)}
        assert not tops & FORBIDDEN[package], path


def test_agents_know_no_store_and_no_lane() -> None:
    for path in (ROOT / "workers/agents").rglob("*.py"):
        assert not {name for name in imports(path) if name.startswith(("shared.store", "shared.lane", "redis"))}, path


@pytest.mark.parametrize("room", ["shared/reading", "shared/operating"])
def test_what_an_operator_sees_and_does_is_the_same_for_every_surface(room: str) -> None:
    """Values come out, and nothing is printed: the command line and the dashboard show them in their own ways."""
    for path in (ROOT / room).glob("*.py"):
        assert not {name for name in imports(path) if name.partition(".")[0] in ("typer", "rich", "starlette")}, path
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"), path
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                shown = ast.unparse(node.returns) if node.returns else ""
                assert not re.search(r"\b(Row|Any)\b", shown), f"{path}: {node.name}"
