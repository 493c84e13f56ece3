"""What a setting does: the words below it in the source of its class.

pydantic could keep them beside the fields, but reads all sources for that whenever a process starts: a tenth of a second.
Only the settings reference and a first `keyturn.toml` need them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


def description(kind: type[BaseModel], name: str) -> str:
    """The words for this setting, by the class itself or the nearest one that it inherits from. Empty: there are none."""
    classes = (base for base in kind.__mro__ if name in vars(base).get("__annotations__", ()))
    return next((words for base in classes if (words := _below(base).get(name))), "")


@cache
def _below(kind: type) -> Mapping[str, str]:
    """The text below each annotated name of a class."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, following in pairwise(definition.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                found[name] = inspect.cleandoc(words)
    return found
