"""Statements as functions. A store module declares those of the `.sql` file beside it, with their parameters:

    class JournalSql(Protocol):
        def inbox_by_id(self, *, id: str) -> Step: ...

    sql = declared(JournalSql)                                    # reads journal.sql
    [rows] = await database.read(sql.inbox_by_id(id="in_1"))

When the module is imported, the declaration and the file must name the same statements with the same parameters. mypy
checks every call against the declaration, and a test finds statements that nobody calls. A statement with many parameters
takes them as one row: `def set_aside(self, **letter: Unpack[Letter]) -> Step: ...`, where Letter is a TypedDict.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import CO_VARKEYWORDS
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar, cast, get_args, get_type_hints

from shared.codec import storable
from shared.store.database.sql_file import POSTGRES, SQLITE, BadSql, blocks, text_of
from shared.value import value

Declaration = TypeVar("Declaration")
PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
STATEMENTS: dict[str, Statement] = {}  # all that were declared, by name


@dataclass(slots=True, eq=False)  # equal only to itself: the composer looks statements up on every write
class Statement:
    """One statement in the words of each database, with `:name` parameters. Empty: that database has none."""

    name: str
    sqlite: str
    postgres: str
    gives: str | None = None  # what later statements of its transaction may select from
    parameters: frozenset[str] = field(init=False)
    returns: bool = field(init=False)  # a write that returns rows
    asks: bool = field(init=False)  # a query

    def __post_init__(self) -> None:
        either = self.sqlite + self.postgres
        self.parameters = frozenset(PARAMETER.findall(either))
        self.returns = "RETURNING" in either
        self.asks = either.startswith("SELECT")


@value
class Step:
    """A statement with its values."""

    statement: Statement
    values: dict[str, Any]


def declared(declaration: Callable[..., Declaration]) -> Declaration:
    """The statements of the `.sql` file beside the declaring module, each as a function that gives a Step.

    BadSql, so that the module cannot be imported, where the file and the declaration differ.
    """
    path = Path(str(sys.modules[declaration.__module__].__file__)).with_suffix(".sql")
    functions = {name: f for name, f in vars(declaration).items() if isinstance(f, FunctionType) and name[0] != "_"}
    found = {
        name: Statement(name, text_of(path, block, SQLITE), text_of(path, block, POSTGRES), block.gives)
        for name, block in blocks(path).items()
    }
    if differing := sorted(functions.keys() ^ found.keys()):
        raise BadSql(f"{path.name} and {declaration.__module__} differ in {', '.join(differing)}")
    for name, function in functions.items():
        if differing := sorted(_parameters(function) ^ found[name].parameters):
            raise BadSql(f"{path.name}: the parameters of {name} differ in {', '.join(differing)}")
    if doubled := sorted(found.keys() & STATEMENTS.keys()):
        raise BadSql(f"{path.name}: another file has {', '.join(doubled)}")
    STATEMENTS.update(found)
    return cast(Declaration, SimpleNamespace(**{name: _maker(statement) for name, statement in found.items()}))


def _parameters(function: FunctionType) -> set[str]:
    """The names that a declared function takes: each by itself, or as the keys of a row (`**row: Unpack[Row]`)."""
    code = function.__code__
    *names, last = ("", *code.co_varnames[1:])
    if not code.co_flags & CO_VARKEYWORDS:
        return {*names, last} - {""}
    row: type = get_args(get_type_hints(function)[last])[0]
    return {*names, *row.__annotations__} - {""}


def _maker(statement: Statement) -> Callable[..., Step]:
    def make(**values: Any) -> Step:
        return Step(statement, values)

    return make


def storable_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The same steps without characters that some database cannot keep."""
    return tuple(
        Step(s.statement, {name: storable(v) if isinstance(v, str) else v for name, v in s.values.items()})
        for s in steps
    )
