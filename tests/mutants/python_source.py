"""Mutants of Python source: flipped comparisons, dropped conditions, removed calls, changed constants."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

from tests.mutants.mutant import Mutant

FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SWAPPED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}
SILENT = {"info", "warning", "error", "exception", "debug", "inc", "observe"}  # log lines and counters


def mutants_of(path: Path, source: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines. Type hints, docstrings, messages and log lines are left alone."""
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    made = []
    for node, by, what in _changes(tree):
        end_line, end_column = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
        start = offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        text = source[start : offset(end_line, end_column)]
        if by != text:
            made.append(Mutant(path, node.lineno, start, text, by, what))  # type: ignore[attr-defined]
    return sorted(made, key=lambda mutant: (mutant.line, mutant.start, mutant.what))


def _changes(tree: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    for node in _living(tree):
        match node:
            case ast.Compare():
                for i, op in enumerate(node.ops):
                    changed = deepcopy(node)
                    changed.ops[i] = FLIPPED[type(op)]()
                    yield node, f"({ast.unparse(changed)})", "flip a comparison"
            case ast.BoolOp(values=values):
                for i in range(len(values)):
                    rest = [value for j, value in enumerate(values) if j != i]
                    kept = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
                    yield node, f"({ast.unparse(kept)})", f"drop `{ast.unparse(values[i])}`"
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                if not isinstance(test, ast.Compare | ast.BoolOp) and not _is_true(test):
                    yield test, f"(not ({ast.unparse(test)}))", "negate a condition"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, f"({ast.unparse(operand)})", "drop `not`"
            case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())) if not _is_silent(node.value):
                yield node, "pass", "remove a call"
            case ast.Call(keywords=keywords) if not _is_silent(node):
                for i, keyword in enumerate(keywords):
                    if keyword.arg is not None:
                        changed_call = deepcopy(node)
                        del changed_call.keywords[i]
                        yield node, ast.unparse(changed_call), f"drop the keyword `{keyword.arg}`"
            case ast.Return(value=value) if value is not None and not _is_none(value):
                yield node, "return None", "return nothing"
            case ast.Continue():
                yield node, "pass", "go on instead of continuing with the next"
            case ast.Break():
                yield node, "pass", "do not leave the loop"
            case ast.BinOp(op=op) if type(op) in SWAPPED and not _is_text(node):
                changed_sum = deepcopy(node)
                changed_sum.op = SWAPPED[type(op)]()
                yield node, f"({ast.unparse(changed_sum)})", "swap an operator"
            case ast.Constant(value=bool() as flag):
                yield node, str(not flag), "flip a constant"
            case ast.Constant(value=int() | float() as number):
                yield node, str(number + 1), "change a constant"
            case ast.comprehension(ifs=ifs) if ifs:
                for condition in ifs:
                    yield condition, "True", "drop a filter"
            case ast.ExceptHandler(type=ast.Tuple(elts=kinds) as caught) if len(kinds) > 1:
                for i in range(len(kinds)):
                    rest = [kind for j, kind in enumerate(kinds) if j != i]
                    yield caught, f"({', '.join(map(ast.unparse, rest))},)", f"do not catch {ast.unparse(kinds[i])}"


def _living(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes that decide something at run time."""
    for name, field in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params", "msg"):
            continue
        for child in field if isinstance(field, list) else [field]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Raise):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Call) and _is_silent(child):
                continue
            yield child
            yield from _living(child)


def _is_silent(call: ast.expr) -> bool:
    if isinstance(call, ast.Await):
        call = call.value
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in SILENT


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )
