"""One small change to one file, that some test should notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutant:
    """`text` stands at `start` (a character offset) of the file and is replaced by `by`."""

    path: Path
    line: int
    start: int
    text: str
    by: str
    what: str  # in words, for the report

    def apply(self, source: str) -> str:
        end = self.start + len(self.text)
        assert source[self.start : end] == self.text, f"{self.path} has changed"
        return source[: self.start] + self.by + source[end:]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.what}: `{_short(self.text)}` -> `{_short(self.by)}`"


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= 80 else one_line[:77] + "..."
