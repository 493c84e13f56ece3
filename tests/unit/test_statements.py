"""Every statement has one name, one sentence and one module; what a module declares, its file has, and somebody calls it."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.store.database.sql_file import BadSql
from shared.store.database.statements import STATEMENTS, Statement

ROOT = Path(__file__).parents[2]
STORE = ROOT / "shared/store"
PRODUCT = [path for room in ("shared", "producers", "workers", "keyturn") for path in (ROOT / room).rglob("*.py")]
SQL_FILES = sorted(STORE.glob("*.sql"))
MODULE = """
from __future__ import annotations
from typing import Protocol, TypedDict, Unpack
from shared.store.database.statements import Step, declared
class Row(TypedDict):
    id: str
    text: str
class ToySql(Protocol):
    {declaration}
sql = declared(ToySql)
"""
ROW = "-- name: toy_row\n-- One row.\nSELECT text FROM toys WHERE id = :id\n"

Import = Callable[[str, str], Any]


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """Imports a module that makes this declaration beside a file with this SQL."""
    known = dict(STATEMENTS)
    monkeypatch.syspath_prepend(tmp_path)

    def run(declaration: str, sql: str) -> Any:
        (tmp_path / "toys.py").write_text(MODULE.format(declaration=declaration))
        (tmp_path / "toys.sql").write_text(sql)
        return importlib.import_module("toys").sql

    yield run
    sys.modules.pop("toys", None)
    STATEMENTS.clear()
    STATEMENTS.update(known)


def test_a_declared_statement_is_a_function_that_gives_its_step(imported: Import) -> None:
    step = imported("def toy_row(self, *, id: str) -> Step: ...", "-- The toys.\n\n" + ROW).toy_row(id="t1")
    assert (step.statement, step.values) == (STATEMENTS["toy_row"], {"id": "t1"})
    assert (step.statement.asks, step.statement.returns, step.statement.gives) == (True, False, None)


@pytest.mark.parametrize(
    ("declaration", "sql", "said"),
    [
        ("def toy_rows(self, *, id: str) -> Step: ...", ROW, "toy_row, toy_rows"),
        ("def toy_row(self, *, id: str, limit: int) -> Step: ...", ROW, "limit"),
        ("def toy_row(self) -> Step: ...", ROW, "id"),
        ("def toy_row(self, **row: Unpack[Row]) -> Step: ...", ROW, "text"),
        ("def toy_row(self, *, id: str) -> Step: ...", ROW + ROW, "two statements"),
        ("def toy_row(self, *, id: str) -> Step: ...", ROW.replace("-- One row.\n", ""), "no sentence"),
        ("def toy_row(self, *, id: str) -> Step: ...", ROW + "AND {{wanted}}", "no statements give wanted"),
        ("def inbox_by_id(self, *, id: str) -> Step: ...", ROW.replace("toy_row", "inbox_by_id"), "another file"),
    ],
)
def test_a_module_whose_file_differs_cannot_be_imported(
    imported: Import, declaration: str, sql: str, said: str
) -> None:
    with pytest.raises(BadSql, match=said):
        imported(declaration, sql)


def test_a_wide_row_is_declared_by_its_columns(imported: Import) -> None:
    sql = "-- name: toy_add\n-- Add a toy.\nINSERT INTO toys VALUES (:id, :text)\n"
    assert imported("def toy_add(self, **row: Unpack[Row]) -> Step: ...", sql).toy_add(id="t1", text="x").values


GIVING = """-- name: toy_take
-- Take a toy.
UPDATE toys SET taken = 1 WHERE id = :id
-- [postgres] SQLite locks the whole file.
FOR UPDATE
-- [both]
RETURNING id
-- gives: taken
(SELECT id FROM toys WHERE id = :id AND taken = 1) AS taken

-- name: toy_log
-- Log it.
INSERT INTO log SELECT {{now_ms}}, id FROM {{taken}}  -- nothing if it was not taken
"""


def test_each_database_gets_its_own_words(imported: Import) -> None:
    declaration = """def toy_take(self, *, id: str) -> Step: ...
    def toy_log(self, *, id: str) -> Step: ..."""
    sql = imported(declaration, GIVING)
    take, log = sql.toy_take(id="t").statement, sql.toy_log(id="t").statement
    assert take.gives == "taken" and take.returns
    assert "FOR UPDATE" in take.postgres and "FOR UPDATE" not in take.sqlite
    assert log.sqlite.endswith("FROM (SELECT id FROM toys WHERE id = :id AND taken = 1) AS taken")
    assert log.postgres.endswith("FROM taken") and "clock_timestamp()" in log.postgres


def test_a_word_with_a_parameter_stands_around_it(imported: Import) -> None:
    rows = "-- name: toy_rows\n-- The toys of a list.\nSELECT value ->> 'id' FROM {{rows(:toys)}}\n"
    toys = imported("def toy_rows(self, *, toys: str) -> Step: ...", rows).toy_rows(toys="[]").statement
    assert toys.sqlite.endswith("FROM (SELECT value FROM json_each(:toys) LIMIT -1)")
    assert toys.postgres.endswith("FROM jsonb_array_elements(:toys)")


# -- the tree


class Calls(ast.NodeVisitor):
    """The statements that one module uses, and what is passed to them with `**`."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.spread: list[tuple[int, str]] = []
        self._known: dict[str, str] = {}  # variables with an annotation, in the function that is visited

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = dict(self._known)
        arguments = (*node.args.args, *node.args.kwonlyargs)
        self._known |= {a.arg: ast.unparse(a.annotation) for a in arguments if a.annotation is not None}
        if (rest := node.args.kwarg) is not None and rest.annotation is not None:  # `**rest: Unpack[Row]`
            self._known[rest.arg] = ast.unparse(rest.annotation).removeprefix("Unpack[").removesuffix("]")
        for inner in ast.walk(node):
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                self._known[inner.target.id] = ast.unparse(inner.annotation)
        self.generic_visit(node)
        self._known = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in STATEMENTS and ast.unparse(node.value).rpartition(".")[2] == "sql":
            self.used.add(node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value).rpartition(".")[2] == "sql":
            for keyword in node.keywords:
                if keyword.arg is None:
                    name = ast.unparse(keyword.value)
                    self.spread.append((node.lineno, self._known.get(name, name)))
        self.generic_visit(node)


def calls() -> dict[Path, Calls]:
    found = {}
    for path in PRODUCT:
        found[path] = Calls()
        found[path].visit(ast.parse(path.read_text()))
    return found


def declare_all() -> None:
    for path in SQL_FILES:
        importlib.import_module(f"shared.store.{path.stem}")


def test_every_file_is_read_by_the_module_beside_it() -> None:
    declare_all()
    assert SQL_FILES and all(path.with_suffix(".py").exists() for path in SQL_FILES)


def test_no_statement_is_unused() -> None:
    declare_all()
    used = set[str]().union(*(found.used for found in calls().values()))
    assert sorted(STATEMENTS.keys() - used) == []


def test_what_is_passed_as_a_whole_row_is_typed() -> None:
    """mypy compares a call with the declaration; a plain dict would hide what is passed."""
    declare_all()
    classes = [
        (node.name, {ast.unparse(base) for base in node.bases})
        for path in PRODUCT
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    typed = {name for name, bases in classes if "TypedDict" in bases}
    assert typed
    typed |= {name for name, bases in classes if bases & typed}
    untyped = [
        (path.name, *where) for path, found in calls().items() for where in found.spread if where[1] not in typed
    ]
    assert untyped == []


def test_a_statement_is_equal_only_to_itself() -> None:
    one, other = (Statement("s", "SELECT 1", "SELECT 1") for _ in range(2))
    assert one == one and one != other and len({one, other}) == 2
