"""A mutant put into a product that is imported already: the functions that it changes get the code of the mutant.

So the product is imported once and not for each mutant. What runs at the import (the body of a module or a class, defaults of
arguments, functions that are called meanwhile) cannot be changed so: such a mutant needs a process that has imported nothing.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

Change = tuple[Any, str, Any]  # an object, one of its attributes, and what that becomes


class Product:
    """The modules of some folders, imported, with a note of the functions that ran meanwhile."""

    def __init__(self, root: Path, files: Iterable[Path]) -> None:
        self._root = root
        self._ran: set[tuple[str, str]] = set()
        sys.setprofile(self._note)
        try:
            for file in files:
                if file.stem == "__main__":  # it would run
                    continue
                with suppress(ImportError):  # of a library that is not installed
                    importlib.import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._ran.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    def changes(self, path: str, old: str, new: str) -> list[Change] | None:
        """Which functions get which code; None if the change is not in functions alone."""
        file = str(self._root / path)
        changed = changed_functions(compile(old, file, "exec"), compile(new, file, "exec"))
        if not changed or any((file, before.co_qualname) in self._ran for before, _ in changed):
            return None
        by_place = {(before.co_qualname, before.co_firstlineno): after for before, after in changed}
        found = [
            (function, "__code__", by_place[place])
            for function in gc.get_objects()
            if isinstance(function, FunctionType)
            and function.__code__.co_filename == file
            and (place := (function.__code__.co_qualname, function.__code__.co_firstlineno)) in by_place
        ]
        return found or None


def changed_functions(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """The functions of a module whose code has changed, before and after; None if more than functions has."""
    is_function = bool(old.co_flags & inspect.CO_OPTIMIZED)
    inner, inner_now = _inner(old), _inner(new)
    if _own(old) != _own(new) or len(inner) != len(inner_now):
        return [(old, new)] if is_function and old.co_freevars == new.co_freevars else None
    changed: list[tuple[CodeType, CodeType]] = []
    for before, after in zip(inner, inner_now, strict=True):
        more = changed_functions(before, after)
        if more is None:
            return [(old, new)] if is_function and old.co_freevars == new.co_freevars else None
        changed += more
    return [(old, new), *changed] if changed and is_function else changed


def _inner(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _own(code: CodeType) -> tuple[Any, ...]:
    """What makes a function, without the numbers of its lines and without the functions in it."""
    constants = [repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
    counts = (code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags)
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code, constants, counts, names, code.co_exceptiontable
