"""What holds for the names of the product's classes and functions."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_ARGUMENTS = 6


@cache
def nodes() -> tuple[tuple[str, ast.AST], ...]:
    """Every class and function of the product, with its file."""
    return tuple(
        (str(path.relative_to(ROOT)), node)
        for package in ("shared", "producers", "workers", "keyturn")
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_no_two_classes_share_a_name() -> None:
    where = defaultdict(list)
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            where[node.name].append(path)
    assert len(where) > 300
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


def test_every_public_class_says_what_its_caller_may_rely_on() -> None:
    silent = [
        f"{path}: {node.name}"
        for path, node in nodes()
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and ast.get_docstring(node) is None
    ]
    assert silent == []


def test_no_function_takes_more_arguments_than_a_reader_can_hold() -> None:
    long = [
        f"{path}: {node.name}"
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _arguments(node) > MOST_ARGUMENTS
    ]
    assert long == []


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))
