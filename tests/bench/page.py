"""The same tables as a page: every case with its spread, and the goals, the lost ones too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from tests.bench.board import Board, Row
from tests.bench.goals import BESIDE, Judged
from tests.bench.table import HEADINGS, number

REPEAT = "Repeat it with `./run bench`, on an idle machine; medians, with the least and the most in brackets."


def page(board: Board, judged: Iterable[Judged], caption: str) -> str:
    parts = [f"# Measured\n\n{caption}.\n{REPEAT}\n", f"## Goals\n\n{goals_table(board, judged)}"]
    parts += [f"## {case}\n\n{case_table(list(rows))}" for case, rows in groupby(board, key=lambda row: row.case)]
    return "\n".join(parts)


def goals_table(board: Board, judged: Iterable[Judged]) -> str:
    lines = []
    for item in judged:
        goal, holds = item.goal, {True: "yes", False: "**no**", None: "not measured"}[item.holds]
        measured = "–" if item.figure is None else f"{number(item.figure)} {goal.unit}"
        bound = f"{'≤' if goal.at_most else '≥'} {number(goal.bound)} {goal.unit}"
        lines.append([goal.text, measured, bound, holds])
    for text, figure in BESIDE.items():
        if (found := figure(board)) is not None:
            lines.append([text, number(found), "", ""])
    return _table(["", "measured", "needed", "holds"], lines)


def case_table(rows: Sequence[Row]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row.columns()))
    lines = [
        [f"{row.variant}{f' ({row.note})' if row.note else ''}", *(_cell(row, name) for name in columns)]
        for row in rows
    ]
    failed = [f"\n{row.variant}: {row.failed}\n" for row in rows if row.failed]
    return _table(["", *(HEADINGS.get(name, name) for name in columns)], lines) + "".join(failed)


def _cell(row: Row, column: str) -> str:
    figures, middle = row.figures(column), row.median(column)
    if middle is None:
        return "–"
    if min(figures) == max(figures):
        return number(middle)
    return f"{number(middle)} ({number(min(figures))}…{number(max(figures))})"


def _table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    ruled = [headings, ["---", *("--:" for _ in headings[1:])], *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in ruled) + "\n"
