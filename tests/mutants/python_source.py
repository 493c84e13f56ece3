"""Mutants of Python source: flipped comparisons, dropped conditions, removed calls, changed constants.

Left out, because no test should notice them:
- type hints, docstrings, messages of exceptions, log lines and counters (`survived` is both), and conditions on which nothing
  hangs but a log line or a counter;
- names of tasks and threads, which only a debugger shows;
- what tunes the interpreter (`gc.freeze`, `share_with_threads`): the same happens, sooner or later;
- failpoints (`reach`): places for the fault harness, which the mutants do not meet;
- `return False` that becomes `return None`: both are false (`return True` in its place is tried);
- `strict=True` of `zip`: an assertion of ours, which nobody can notice while it holds;
- `transaction=False` of a Redis pipeline: with a transaction the answers are the same, and come later;
- the value of a named duration or batch size (`..._SECONDS`, `AT_ONCE`, `timedelta(...)` of a module): it decides when things
  happen or how many at a time, and a test that noticed a second more would fail on a slow machine. Likewise a number given as a
  `timeout`, and a `sleep` that is removed. That there is a time limit at all is tried: its keyword is dropped;
- whether a duration that a clock measures, or that is compared with a named one, may be exactly a limit or must be below it
  (`monotonic() - began > LOOK_SECONDS`, `delay <= SOON`), and how a pause between two looks grows (`pause = min(pause * 2, …)`);
- `nowait=True` of a disconnect: the same happens, and the caller waits for the socket;
- `usedforsecurity=False` of a digest: only an interpreter that allows no such digest for security would notice.

Numbers from 10 on are doubled instead of raised by one: a limit that is off by one hurts nobody, one twice as large does.
"""

from __future__ import annotations

import ast
import re
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
WHEN_NOT_WHAT = re.compile(
    r"(^|_)(SECONDS|MINUTES|MS|S|PAUSE|AT_ONCE|PER_COMMIT|PAGES?|REST|SPREAD)$|^PAGES?_"
)  # ends of names
IN_SECONDS = re.compile(r"(^|_)(SECONDS|MINUTES|MS|S)$")
SILENT = {"info", "warning", "error", "exception", "debug", "inc", "observe", "freeze"}  # methods
SILENT_FUNCTIONS = {"survived", "reach", "share_with_threads", "TypeVar"}
CLOCKS = {"monotonic", "time"}
NAMED = {"create_task": "name", "Thread": "name", "ThreadPoolExecutor": "thread_name_prefix"}


def mutants_of(path: Path, source: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines."""
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
    silent, durations = _silent_conditions(tree), _durations(tree)
    for node in _living(tree):
        if node in silent:
            continue
        match node:
            case ast.Compare() if not _is_by_the_clock(node, durations):
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
                is_tried_itself = isinstance(test, ast.Compare | ast.BoolOp) or test in silent
                if not is_tried_itself and not _is_constant(test, True):
                    yield test, f"(not ({ast.unparse(test)}))", "negate a condition"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, f"({ast.unparse(operand)})", "drop `not`"
            case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())) if not _is_silent(node.value, "sleep"):
                yield node, "pass", "remove a call"
            case ast.Call(keywords=keywords) if not _is_silent(node):
                for i, keyword in enumerate(keywords):
                    is_name = keyword.arg is not None and keyword.arg == NAMED.get(_called(node))
                    if keyword.arg is not None and not is_name and not _is_unseen(keyword):
                        changed_call = deepcopy(node)
                        del changed_call.keywords[i]
                        yield node, ast.unparse(changed_call), f"drop the keyword `{keyword.arg}`"
            case ast.Return(value=value) if value is not None and not _is_constant(value, None, False):
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
                yield node, str(number * 2 if abs(number) >= 10 else number + 1), "change a constant"
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
            if (isinstance(child, ast.Call) and _is_silent(child)) or _is_timing(child):
                continue
            if isinstance(child, ast.keyword) and (_is_unseen(child) or _is_time_limit(child)):
                continue
            yield child
            yield from _living(child)


def _silent_conditions(tree: ast.AST) -> set[ast.AST]:
    """The conditions, and what they are put together from, on which only log lines and counters hang."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and all(
            isinstance(do, ast.Expr) and _is_silent(do.value) for do in node.body + node.orelse
        ):
            left: list[ast.AST] = [node.test]
            while left:
                part = left.pop()
                found.add(part)
                left += part.values if isinstance(part, ast.BoolOp) else []
                left += [part.operand] if isinstance(part, ast.UnaryOp) else []
    return found


def _called(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    return ast.unparse(call.func).rpartition(".")[2]


def _is_silent(call: ast.expr, *also: str) -> bool:
    if isinstance(call, ast.Await):
        call = call.value
    match call:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in {*SILENT, *also}
        case ast.Call(func=ast.Name(id=name)):
            return name in SILENT_FUNCTIONS
    return False


def _is_unseen(keyword: ast.keyword) -> bool:
    return keyword.arg in ("strict", "usedforsecurity", "nowait") or (
        keyword.arg == "transaction" and _is_constant(keyword.value, False)
    )


def _durations(tree: ast.AST) -> set[str]:
    """The names of a module that stand for a duration."""
    return {
        name.id
        for node in ast.iter_child_nodes(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _called(node.value) == "timedelta"
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }


def _is_by_the_clock(node: ast.Compare, durations: set[str]) -> bool:
    """Whether it compares a time that just passed, or a named duration: nobody cares for a time that is exactly so long."""
    is_order = all(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops)
    return is_order and any(
        _called(part) in CLOCKS
        if isinstance(part, ast.Call)
        else isinstance(part, ast.Name) and (part.id in durations or (part.id.isupper() and IN_SECONDS.search(part.id)))
        for part in ast.walk(node)
    )


def _is_time_limit(keyword: ast.keyword) -> bool:
    return (keyword.arg or "").endswith("timeout") and isinstance(keyword.value, ast.Constant)


def _is_constant(node: ast.expr, *values: bool | None) -> bool:
    return isinstance(node, ast.Constant) and any(node.value is value for value in values)


def _is_timing(node: ast.AST) -> bool:
    """Whether it gives a value to a named duration or batch size."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if names == ["pause"] and isinstance(value, ast.Call) and _called(value) == "min":
        return True
    if not names or not all(name.isupper() for name in names):
        return False
    is_timedelta = isinstance(value, ast.Call) and ast.unparse(value.func) == "timedelta"
    return is_timedelta or all(WHEN_NOT_WHAT.search(name) for name in names)


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )
