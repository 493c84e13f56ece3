"""Walk through every state that a model can reach, nearest first, and show the shortest way to the first broken promise.

A model yields, for a state, its steps in the order in which a healthy system would take them. A step is `work` (what a
healthy system does by itself), `other` (allowed, not needed) or `fault`. Progress is judged on work alone: from every
reachable state the first work step, taken again and again, must lead to rest. So no fault leaves anything stuck.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, TypeVar

CIRCLES = "I7: work goes round in circles"
_NONE = -1  # the number of no state


State = TypeVar("State", bound=tuple[Any, ...])


def quickly_replaced(kind: type[State]) -> type[State]:
    """A NamedTuple whose `_replace` costs half: it copies the fields at once, not one by one. Every step calls it a few times."""
    places = {name: place for place, name in enumerate(kind._fields)}  # type: ignore[attr-defined]
    made = tuple.__new__

    def replaced(self: State, **changes: Any) -> State:
        values = list(self)
        for name, value in changes.items():
            values[places[name]] = value
        return made(kind, values)

    kind._replace = replaced  # type: ignore[attr-defined]
    return kind


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
    numbers: dict[Any, int] = {start: 0}  # states by number: a tuple in tuples is hashed anew at every look
    states = [start]
    came_from = [_NONE]
    onward: list[int] = []  # where the first work step of each state leads; _NONE at rest
    faults: set[str] = set()
    taken = 0

    def walked(state: int = _NONE, promise: str = "") -> Walk:
        path = [states[number] for number in _path(came_from, state)]
        violation = _violation(model, path, promise) if promise else None
        return Walk(len(states), taken, frozenset(faults), violation)

    all_steps, canonical, is_broken = model.steps, model.canonical, model.broken
    for number, state in enumerate(states):  # which grows meanwhile
        first = _NONE
        for label, kind, after in all_steps(state):
            taken += 1
            after = canonical(after)
            target = numbers.setdefault(after, len(states))
            if target == len(states):
                states.append(after)
                came_from.append(number)
                if broken := is_broken(after):
                    return walked(target, "; ".join(broken))
            if kind is Kind.WORK:
                if first == _NONE:
                    first = target
            elif kind is Kind.FAULT:
                faults.add(label)
        if first == _NONE and not model.at_rest(state):
            return walked(number, "I7: work is left and nobody will ever do it")
        onward.append(first)
    if (stuck := _never_rests(onward)) != _NONE:
        return walked(stuck, CIRCLES)
    return walked()


def _never_rests(onward: list[int]) -> int:
    """The nearest state whose work never comes to rest; _NONE: there is none."""
    rests: set[int] = {_NONE}
    for begin in range(len(onward)):
        passed: set[int] = set()
        state = begin
        while state not in rests:
            if state in passed:
                return begin
            passed.add(state)
            state = onward[state]
        rests |= passed
    return _NONE


def _path(came_from: list[int], state: int) -> list[int]:
    path = []
    while state != _NONE:
        path.append(state)
        state = came_from[state]
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
