"""Mutants of Lua scripts and SQL statements, by their text: neither has a parser at hand, and both are short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.mutant import Mutant

LUA: tuple[tuple[str, str, str], ...] = (
    (r" == ", " ~= ", "flip a comparison"),
    (r" ~= ", " == ", "flip a comparison"),
    (r" < ", " <= ", "flip a comparison"),
    (r" > ", " >= ", "flip a comparison"),
    (r" <= ", " < ", "flip a comparison"),
    (r" >= ", " > ", "flip a comparison"),
    (r" and ", " or ", "swap `and`"),
    (r" or ", " and ", "swap `or`"),
    (r"\bnot ", "", "drop `not`"),
    (r" \+ ", " - ", "swap an operator"),
    (r" - ", " + ", "swap an operator"),
    (r"^ *redis\.call\(.*\)$", "", "remove a call"),
)
SQL: tuple[tuple[str, str, str], ...] = (
    (r" = ", " <> ", "flip a comparison"),
    (r" <> ", " = ", "flip a comparison"),
    (r" < ", " <= ", "flip a comparison"),
    (r" > ", " >= ", "flip a comparison"),
    (r" <= ", " < ", "flip a comparison"),
    (r" >= ", " > ", "flip a comparison"),
    (r"\bIS NULL\b", "IS NOT NULL", "negate a condition"),
    (r"\bIS NOT NULL\b", "IS NULL", "negate a condition"),
    (r"\bNOT (?=EXISTS|LIKE|IN)", "", "drop NOT"),
    (r"\bAND [\w.:']+ (?:=|<>|<=|>=|<|>|LIKE|IS|NOT LIKE) [\w.:'% ]+?(?=$| AND|\))", "", "drop a condition"),
    (r", '\w+'(?=\))", "", "drop a value from a list"),
    (r" DESC\b", " ASC", "turn the order round"),
    (r" \+ ", " - ", "swap an operator"),
)
# Not the 1 of `EXISTS (SELECT 1 FROM …)`: nobody sees which value is selected there.
# Nor the 0 of `(tonumber(ends) or 0) > now_ms()`: one millisecond after 1970 is as long ago.
NUMBER = re.compile(r"(?<![\w.\[:'])(?<!SELECT )(?!0\) (?:>|<=) (?:at|now_ms\(\))(?!\w))\d+(?![\w.\]'])")


def mutants_of(path: Path, source: str) -> list[Mutant]:
    """Every mutant of a script, in the order of its lines. Comments are left alone."""
    rules = LUA if path.suffix == ".lua" else SQL
    return sorted(_found(path, source, rules), key=lambda mutant: (mutant.line, mutant.start, mutant.what))


def _found(path: Path, source: str, rules: tuple[tuple[str, str, str], ...]) -> Iterator[Mutant]:
    start = 0
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        code = line.rstrip("\n").partition("--")[0]
        for pattern, by, what in rules:
            if what == "flip a comparison" and by == " <> " and re.match(r"\s*(SET|UPDATE)\b", code):
                continue  # an assignment
            for match in re.finditer(pattern, code.rstrip()):
                yield Mutant(path, number, start + match.start(), match[0], by, what)
        for match in NUMBER.finditer(code):
            found = int(match[0])
            changed = str(found * 2 if found >= 10 else found + 1)  # as in Python
            yield Mutant(path, number, start + match.start(), match[0], changed, "change a constant")
        start += len(line)
