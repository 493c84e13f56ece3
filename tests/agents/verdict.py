"""What was expected and what was seen. Times are kept apart: a test of the suite must not fail because a machine is slow."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Verdict:
    broken: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)

    def expect(self, what: str, seen: object, wanted: object) -> None:
        if seen != wanted:
            self.broken.append(f"{what}: {seen!r}, expected {wanted!r}")

    def within(self, what: str, seconds: float, most: float) -> None:
        if seconds > most:
            self.slow.append(f"{what}: {seconds:.3f} s, at most {most:g} s")

    @property
    def holds(self) -> bool:
        return not self.broken and not self.slow
