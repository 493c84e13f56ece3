"""Which tests reach which line.

A line is reached by the tests that reach its statement. A constant of a module or a class, which gets its value at the import, is
reached by those that reach a line that names it, and by those in whose own file it is named. Lua files and SQL statements are reached where Python names them. A module of
which nothing was measured is reached where one of its names is used: it is new, or runs only in processes that are killed.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from tests.mutants.groups import ROOT, calling_files, python_files
from tests.mutants.lines import Statement, names_for, names_of, statement_of
from tests.mutants.measuring import Measured


class Reach:
    def __init__(self, measured: Measured) -> None:
        self.seconds = measured.seconds
        self._reached = measured.reached
        self._python = [*python_files(), *calling_files()]
        self.tests_of_line = cache(self._tests_of_line)
        self._text = cache(lambda path: (ROOT / path).read_text())
        self._statement = cache(lambda path, line: statement_of(self._text(path), line))
        self._lines_of = cache(self._count_lines)
        self._lines_in_all: Counter[str] = Counter()
        for path in self._reached:
            self._lines_in_all.update(self._lines_of(Path(path)))

    def _tests_of_line(self, path: Path, line: int) -> list[str]:
        """The tests that reach a line, the nearest and quickest first."""
        if path.suffix != ".py":
            found = self._tests_of_names(self._script_names(path, line))
        else:
            statement: Statement = self._statement(path, line)
            found = self._tests_of(path, statement) if statement.runs else self._tests_of_constant(set(statement.names))
            if not statement.runs and not found:
                found = {test for tests in self._reached.get(str(path), {}).values() for test in tests}
            if not self._is_measured(path) and not found:
                found = self._tests_of_names({path.stem, *names_of(self._text(path))})
        return sorted(found, key=lambda test: self.seconds[test] / self._nearness(test, path))

    def _nearness(self, test: str, path: Path) -> float:
        """Which part of what a test reaches lies in a file."""
        own = self._lines_of(path).get(test, 0)
        return max(own, 1) / max(self._lines_in_all[test], 1)

    def _count_lines(self, path: Path) -> Counter[str]:
        """How many lines of a file each test reaches."""
        return Counter(test for tests in self._reached.get(str(path), {}).values() for test in tests)

    def _is_measured(self, path: Path) -> bool:
        return any(self._statement(path, line).runs for line in self._reached.get(str(path), ()))

    def _tests_of(self, path: Path, statement: Statement) -> set[str]:
        lines = self._reached.get(str(path), {})
        return {test for line in statement.lines for test in lines.get(line, ())}

    def _tests_of_constant(self, names: set[str]) -> set[str]:
        """The tests that run a line which uses one of the names, and those of a file which does so itself."""
        if not names:
            return set()
        files = {test.partition("::")[0] for test in self.seconds}
        named = {file for file in files if (ROOT / file).is_file() and _any_of(names).search(self._text(file))}
        return self._tests_of_names(names) | {test for test in self.seconds if test.partition("::")[0] in named}

    def _tests_of_names(self, names: set[str]) -> set[str]:
        """The tests that run a line which uses one of the names."""
        if not names:
            return set()
        pattern = _any_of(names)
        return {
            test
            for path in self._python
            for number, text in enumerate(self._text(path).splitlines(), 1)
            if pattern.search(text) and self._statement(path, number).runs
            for test in self._tests_of(path, self._statement(path, number))
        }

    def _script_names(self, script: Path, line: int) -> set[str]:
        """What Python calls a Lua file, or another script that includes it, or the SQL statement of a line."""
        if script.suffix == ".sql":
            before = self._text(script).splitlines()[:line]
            return {[text for text in before if text.startswith("-- name: ")][-1].removeprefix("-- name: ")}
        beside = ROOT / script.parent
        stems = {other.stem for other in beside.glob("*.lua") if script.name in other.read_text()} | {script.stem}
        return {
            name for module in beside.glob("*.py") for stem in stems for name in names_for(module.read_text(), stem)
        }


def _any_of(names: set[str]) -> re.Pattern[str]:
    return re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(names)))
