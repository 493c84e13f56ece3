"""No promise rests on code that only tests call: what `shared/context` offers is reached from the product."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "shared.context"
FOLDER = ROOT / "shared/context"
Name = tuple[str, str]  # a module of the package, and what it defines


def product() -> list[Path]:
    """Every module that is shipped, the package itself aside."""
    files = (path for top in ("producers", "workers", "shared", "keyturn") for path in (ROOT / top).rglob("*.py"))
    return [path for path in files if not path.is_relative_to(FOLDER)]


@dataclass
class Uses:
    """What a piece of code uses of the package, and every attribute and keyword in it."""

    names: set[Name] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    keywords: set[tuple[str, str]] = field(default_factory=set)  # of a call: the function's name and the argument's

    def add(self, other: Uses) -> None:
        self.names |= other.names
        self.attributes |= other.attributes
        self.keywords |= other.keywords


def imported(tree: ast.AST) -> tuple[dict[str, Name], dict[str, str]]:
    """The names and the modules of the package that a module imports, by what it calls them."""
    names: dict[str, Name] = {}
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{PACKAGE}."):
            module = node.module.removeprefix(f"{PACKAGE}.")
            names |= {alias.asname or alias.name: (module, alias.name) for alias in node.names}
    return names, modules


def uses(node: ast.AST, names: dict[str, Name], modules: dict[str, str]) -> Uses:
    found = Uses()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in names:
            found.names.add(names[inner.id])
        elif isinstance(inner, ast.Attribute):
            found.attributes.add(inner.attr)
            if isinstance(inner.value, ast.Name) and inner.value.id in modules:
                found.names.add((modules[inner.value.id], inner.attr))
        elif isinstance(inner, ast.Call):
            called = inner.func.attr if isinstance(inner.func, ast.Attribute) else getattr(inner.func, "id", "")
            found.keywords |= {(called, word.arg) for word in inner.keywords if word.arg}
    return found


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def definitions() -> dict[Name, tuple[Definition, Uses]]:
    """Functions and classes of the package, with what each uses. What stands outside of them runs with the import."""
    found: dict[Name, tuple[Definition, Uses]] = {}
    for path in FOLDER.glob("*.py"):
        tree = ast.parse(path.read_text())
        names, modules = imported(tree)
        names |= {node.name: (path.stem, node.name) for node in tree.body if isinstance(node, Definition)}
        found |= {
            (path.stem, node.name): (node, uses(node, names, modules))
            for node in tree.body
            if isinstance(node, Definition)
        }
    return found


@cache
def reached() -> tuple[set[Name], Uses]:
    """What the product uses of the package, directly or through something else in it."""
    known, all_uses = definitions(), Uses()
    for path in product():
        tree = ast.parse(path.read_text())
        all_uses.add(uses(tree, *imported(tree)))
    seen: set[Name] = set()
    while fresh := all_uses.names - seen:
        seen |= fresh
        for name in fresh & known.keys():
            all_uses.add(known[name][1])
    return seen, all_uses


def methods(node: Definition) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield from (inner.name for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_module_of_the_context_is_imported_by_the_product() -> None:
    seen, _ = reached()
    assert {path.stem for path in FOLDER.glob("*.py")} - {"__init__"} - {module for module, _ in seen} == set()


def test_every_function_of_the_context_is_called_by_the_product() -> None:
    seen, _ = reached()
    assert sorted(definitions().keys() - seen) == []


def test_every_method_of_the_context_is_used_by_the_product() -> None:
    seen, all_uses = reached()
    offered = {
        (*name, method)
        for name, (node, _) in definitions().items()
        if name in seen
        for method in methods(node)
        if not method.startswith("__")
    }
    assert sorted(one for one in offered if one[2] not in all_uses.attributes) == []


def test_every_option_of_a_function_of_the_context_is_given_by_the_product() -> None:
    _, all_uses = reached()
    options = {
        (node.name, argument.arg)
        for node, _ in definitions().values()
        if isinstance(node, ast.FunctionDef)
        for argument in node.args.kwonlyargs
    }
    assert sorted(options - all_uses.keywords) == []


@pytest.mark.parametrize(
    "use", ["from shared.context.legal import paired as p\np()", "from shared.context import legal\nlegal.paired()"]
)
def test_both_ways_of_importing_are_seen(use: str) -> None:
    tree = ast.parse(use)
    assert uses(tree, *imported(tree)).names == {("legal", "paired")}
