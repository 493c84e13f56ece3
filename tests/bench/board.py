"""What was measured: a row per contestant of a case, a list of figures per column, and what keeps a row empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

Sample = dict[str, float]


class Absent(Exception):
    """A contestant that cannot run on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One contestant of a case. `run` measures once; it may be called several times."""

    name: str
    run: Callable[[], Sample]
    note: str = ""


@dataclass(slots=True)
class Row:
    case: str
    variant: str
    note: str = ""
    failed: str = ""
    samples: list[Sample] = field(default_factory=list)

    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for sample in self.samples for name in sample))

    def figures(self, column: str) -> list[float]:
        return [sample[column] for sample in self.samples if column in sample]

    def median(self, column: str) -> float | None:
        figures = self.figures(column)
        return median(figures) if figures else None

    def as_json(self) -> dict[str, Any]:
        spread = {
            name: {"median": self.median(name), "min": min(found), "max": max(found), "all": found}
            for name in self.columns()
            if (found := self.figures(name))
        }
        about = {"case": self.case, "variant": self.variant, "note": self.note, "failed": self.failed}
        return {**about, "figures": spread}


class Board:
    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def row(self, case: str, variant: str, note: str = "") -> Row:
        return self._rows.setdefault((case, variant), Row(case, variant, note))

    def of(self, case: str) -> list[Row]:
        return [row for row in self if row.case == case]

    def median(self, case: str, variant: str, column: str) -> float | None:
        row = self._rows.get((case, variant))
        return row.median(column) if row is not None else None
