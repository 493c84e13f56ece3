"""Walk through every state that a model can reach, nearest first, and show the shortest way to the first broken promise.

A model yields, for a state, its steps in the order in which a healthy system would take them. A step is `work` (what a
healthy system does by itself), `other` (allowed, not needed) or `fault`. Progress is judged on work alone: from every
reachable state the first work step, taken again and again, must lead to rest. So no fault leaves anything stuck.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

CIRCLES = "I7: work goes round in circles"


class Kind(IntEnum):
    WORK = 0
    OTHER = 1
    FAULT = 2


class Step(NamedTuple):
    label: str
    kind: Kind
    after: Any


class Model(Protocol):
    @property
    def name(self) -> str: ...

    def initial(self) -> Any: ...

    def steps(self, state: Any) -> Iterator[Step]: ...

    def broken(self, state: Any) -> list[str]:
        """The promises that this state breaks."""

    def at_rest(self, state: Any) -> bool:
        """Whether everything has ended and nothing is left behind."""

    def canonical(self, state: Any) -> Any:
        """The same for states that differ only in which of two equal workers is which."""


@dataclass(frozen=True)
class Violation:
    """What went wrong and the steps that lead there."""

    model: str
    promise: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        steps = "\n".join(f"  {n:2} {label}" for n, label in enumerate(self.trace, 1))
        return f"{self.model}: {self.promise}\n{steps}"


@dataclass(frozen=True)
class Walk:
    """How much was seen; `violation` is None when every promise held in all of it."""

    states: int
    steps: int
    faults: frozenset[str]  # the faults that happened somewhere on the way
    violation: Violation | None


def explore(model: Model) -> Walk:
    """Visit every reachable state once. Ends early at the first broken promise or dead end."""
    collecting = gc.isenabled()
    gc.disable()  # states are tuples in tuples, never in a circle: looking for one costs a third of the time
    try:
        return _explore(model)
    finally:
        if collecting:
            gc.enable()


def _explore(model: Model) -> Walk:
    start = model.canonical(model.initial())
    came_from: dict[Any, Any] = {start: None}
    onward: dict[Any, Any] = {}  # where the first work step of each state leads; None at rest
    faults: set[str] = set()
    queue = deque([start])
    taken = 0

    def walked(state: Any = None, promise: str = "") -> Walk:
        violation = _violation(model, _path(came_from, state), promise) if promise else None
        return Walk(len(came_from), taken, frozenset(faults), violation)

    while queue:
        state = queue.popleft()
        works = False
        for label, kind, after in model.steps(state):
            taken += 1
            after = model.canonical(after)
            if kind is Kind.WORK and not works:
                works = True
                onward[state] = after
            elif kind is Kind.FAULT:
                faults.add(label)
            if after not in came_from:
                came_from[after] = state
                if broken := model.broken(after):
                    return walked(after, "; ".join(broken))
                queue.append(after)
        if not works:
            if not model.at_rest(state):
                return walked(state, "I7: work is left and nobody will ever do it")
            onward[state] = None
    if (stuck := _never_rests(onward)) is not None:
        return walked(stuck, CIRCLES)
    return walked()


def _never_rests(onward: dict[Any, Any]) -> Any | None:
    """The nearest state whose work never comes to rest."""
    rests: set[Any] = {None}
    for begin in onward:
        passed: set[Any] = set()
        state = begin
        while state not in rests:
            if state in passed:
                return begin
            passed.add(state)
            state = onward[state]
        rests |= passed
    return None


def _path(came_from: dict[Any, Any], state: Any) -> list[Any]:
    path = [state]
    while (state := came_from[state]) is not None:
        path.append(state)
    return path[::-1]


def _violation(model: Model, path: list[Any], promise: str) -> Violation:
    """Walk the path again without renumbering, so that a number means the same worker all along."""
    labels = []
    state = model.initial()
    for target in path[1:]:
        step = next(step for step in model.steps(state) if model.canonical(step.after) == target)
        labels.append(step.label)
        state = step.after
    passed: set[Any] = set()
    while promise == CIRCLES and model.canonical(state) not in passed:
        passed.add(model.canonical(state))
        step = next(step for step in model.steps(state) if step.kind is Kind.WORK)
        labels.append(f"(work alone) {step.label}")
        state = step.after
    return Violation(model.name, promise, tuple(labels))


def changed(items: tuple[Any, ...], i: int, item: Any) -> tuple[Any, ...]:
    """The tuple with its i-th item replaced."""
    return (*items[:i], item, *items[i + 1 :])
