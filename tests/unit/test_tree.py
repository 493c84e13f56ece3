"""What must not be in the project: where packages come from, where somebody's checkout lies, functions that want too much."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Written in pieces, so that this file does not find itself.
HOSTS = re.compile(
    "|".join(
        ["py" + "pi" + r"\.org", "files" + r"\.pythonhosted", "registry" + r"\.npm" + "js", "deb" + r"\.debian\.org"]
    )
)
PACKAGES = ("shared", "producers", "workers", "keyturn")
MOST_VALUES = 6
HOMES = re.compile("|".join(["/ro" + "ot/", "/ho" + "me/[a-z]", "/Us" + "ers/", "/wo" + "rk/"]))


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        found += [f"{path.relative_to(ROOT)}: {line.strip()}" for line in text.splitlines() if pattern.search(line)]
    return found


def test_no_file_names_a_package_registry() -> None:
    assert lines_with(HOSTS) == []


def test_no_file_names_a_directory_of_somebodys_machine() -> None:
    assert lines_with(HOMES) == []


def test_no_function_takes_more_than_six_values() -> None:
    """A longer list is a value without a name. Statements take theirs as one row, a TypedDict."""
    found = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES and path.exists()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _values(node.args) > MOST_VALUES
    ]
    assert found == []


def _values(arguments: ast.arguments) -> int:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in named)
