"""A platform's name stands in its own files and in one line of one list. Everything else is derived from its facts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.platforms import PLATFORMS

ROOT = Path(__file__).parents[2]
LIST = Path("shared/platforms/__init__.py")
ORDINARY_WORDS = {"api", "local", "signal", "webhook"}  # also mean other things: only what names the platform counts
OWN_BESIDE = {"local": {Path("keyturn/cli/chat.py")}}  # the terminal is that platform's place to write
# Importers know the names that older gateways gave to platforms: of these, Keyturn connects only some.
FOREIGN_NAMES = Path("keyturn/importing")
OTHER_MEANINGS = {
    *(("local", f"workers/agents/{file}.py") for file in ("resolve", "named")),  # AGENT=local, a model on this machine
    *(("local", f"shared/{file}.py") for file in ("targets", "settings/schedules")),  # the target `local`, a file here
}


def is_own(path: Path, name: str) -> bool:
    if path.parts[:2] == ("producers", name) or path in OWN_BESIDE.get(name, ()):
        return True
    beside = path.parent in (Path("workers/delivery"), Path("shared/platforms"))
    return beside and (path.stem == name or path.stem.startswith(f"{name}_"))


def product() -> Iterator[tuple[Path, str]]:
    for top in ("producers", "workers", "shared", "keyturn"):
        for path in (ROOT / top).rglob("*"):
            shown = path.relative_to(ROOT)
            if path.suffix in (".py", ".sql", ".lua") and not shown.is_relative_to(FOREIGN_NAMES):
                yield shown, path.read_text()


def named(name: str, path: Path, text: str) -> list[str]:
    """The lines of a file that name the platform."""
    if name not in ORDINARY_WORDS:
        return [line.strip() for line in text.splitlines() if name in line.lower()]
    lines = text.splitlines()
    spelled = re.compile(rf"\b{name.upper()}__|\b(?:settings|config)\.{name}\b|`{name}:")
    found = {number for number, line in enumerate(lines, 1) if spelled.search(line)}
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if (isinstance(node, ast.Constant) and node.value == name) or (
                isinstance(node, ast.ImportFrom) and node.module and name in node.module.split(".")
            ):
                found.add(node.lineno)
    return [lines[number - 1].strip() for number in sorted(found)]


@pytest.mark.parametrize("name", list(PLATFORMS))
def test_a_platform_is_named_in_its_own_files_and_in_one_list_only(name: str) -> None:
    elsewhere = {
        str(path): lines
        for path, text in product()
        if not is_own(path, name) and (name, str(path)) not in OTHER_MEANINGS and (lines := named(name, path, text))
    }
    assert elsewhere == {str(LIST): [f'"{name}",']}


@pytest.mark.parametrize("name", list(PLATFORMS))
def test_the_facts_of_a_platform_agree_with_its_files(name: str) -> None:
    facts, folder = PLATFORMS[name], ROOT / "producers" / name
    assert (folder / "receive.py").exists() == facts.receives
    assert (folder / "listen.py").exists() == facts.listens
    assert (folder / "connect.py").exists() == facts.connects
    assert (ROOT / "workers/delivery" / f"{name}.py").exists()
    assert re.fullmatch("[a-z][a-z0-9]*", name) and facts.title
