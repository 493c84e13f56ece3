"""The lines of a Python file that belong together: those of one statement, and those that a newer text of the file kept."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True, slots=True)
class Statement:
    """The innermost statement of a line. `runs` is False for those that run once, when the module is imported."""

    lines: range
    runs: bool
    names: tuple[str, ...] = ()  # what it gives a value to, if it does not run


def statement_of(source: str, line: int) -> Statement:
    """A function's head, with the defaults of its arguments, counts as its body: coverage sees a head at import only."""
    found = Statement(range(line, line + 1), runs=False)
    classes: tuple[str, ...] = ()
    for node, runs in _statements(ast.parse(source), runs=False):
        if not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        if isinstance(node, ast.ClassDef):
            classes = (*classes, node.name)  # its attributes are reached where it is named, too
        body = getattr(node, "body", None)
        if runs and not found.runs:  # in a function: also what is no statement, like the head of an `except`
            found = Statement(range(line, line + 1), runs=True)
        if not body:
            found = Statement(range(node.lineno, (node.end_lineno or node.lineno) + 1), runs, (*_names(node), *classes))
        elif line < body[0].lineno:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found = Statement(range(body[0].lineno, (node.end_lineno or line) + 1), runs=True)
            else:
                found = Statement(range(node.lineno, body[0].lineno), runs)
    return found


def _statements(tree: ast.AST, runs: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """All statements, the outer ones first, and whether they run after the import."""
    inside = runs or isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt):
            yield child, inside
        yield from _statements(child, inside)


def _names(node: ast.stmt) -> tuple[str, ...]:
    match node:
        case ast.Assign(targets=targets):
            return tuple(target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            return (name,)
    return ()


def names_of(source: str) -> set[str]:
    """The classes and functions of a module that others may name."""
    defined = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {node.name for node in defined if not node.name.startswith("_")}


def names_for(source: str, script: str) -> set[str]:
    """The constants of a module that may hold the script of this name: the one called like it, else all that it is loaded with."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        texts = {
            part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        if isinstance(node, ast.Assign) and {script, f"{script}.lua"} & texts:
            found |= {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return {script.upper()} if script.upper() in found else found


def carried(old: str, new: str) -> dict[int, list[int]]:
    """Which lines of the new text a line of the old one stands for.

    A line that is the same stands for itself. Lines that were changed or added are those of the closest kept lines above
    and below them: a test that passed there will mostly pass here, too.
    """
    before, after = old.splitlines(), new.splitlines()
    stands: dict[int, list[int]] = {}
    for tag, a, a_end, b, b_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            for step in range(a_end - a):
                stands.setdefault(a + step + 1, []).append(b + step + 1)
        elif b_end > b:
            for kept in {a, a_end + 1, *range(a + 1, a_end + 1)}:
                stands.setdefault(kept, []).extend(range(b + 1, b_end + 1))
    return stands
