"""A user's own `shared/` or `workers/` beside keyturn.toml never stands in for ours, in any process."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.own_modules import allow_working_directory
from tests.support.place import Place

ROOT = Path(__file__).parents[2]
PACKAGES = ("producers", "workers", "shared", "keyturn", "redis")
AGENT = """
import os, signal, sys

import shared, workers
from keyturn import Reply

def answer(text):
    isolated = sys.modules["__main__"].__spec__.name == "workers.agents.fork_server"
    if text == "crash" and not isolated:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"isolated={isolated} {shared.__file__} {workers.__file__}"
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A directory whose packages are called like ours and like one that we need, and end whoever imports them."""
    opened = Place(tmp_path, agent="mine:answer", lease_seconds="1")
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        opened.write(f"{name}/__init__.py", f"raise SystemExit('the folder {name} was imported')\n")
    opened.write("mine.py", AGENT)
    yield opened
    opened.close()


@pytest.mark.timeout(300)
def test_packages_in_the_working_directory_shadow_nothing_in_any_process(place: Place) -> None:
    """One message is answered by the worker; another kills it and is answered by a process of its own."""
    ours = f"{ROOT / 'shared/__init__.py'} {ROOT / 'workers/__init__.py'}"
    place.up()
    answered = place.run("chat", "-m", "hello")
    assert answered.stdout == f"isolated=False {ours}\n", answered.stderr + place.said("up", "err")
    isolated = place.run("chat", "-m", "crash")
    assert isolated.stdout == f"isolated=True {ours}\n", isolated.stderr + place.said("up", "err")
    assert "was imported" not in place.said("up", "err")
    assert place.run("doctor").returncode == 0


def test_the_working_directory_comes_last_however_it_came_onto_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", ".", str(tmp_path), "/elsewhere"])
    for _ in range(2):
        allow_working_directory()
        assert sys.path == ["/elsewhere", str(tmp_path)]


def test_one_module_alone_starts_python_and_changes_its_path() -> None:
    """So no child can be started in another way."""
    for path in (path for top in ("producers", "workers", "shared", "keyturn") for path in (ROOT / top).rglob("*.py")):
        used = {ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        if path != ROOT / "shared/own_modules.py":
            assert not used & {"sys.executable", "sys.path"}, path
