"""Which of a question's choices become buttons, by what its platform takes. Without buttons its text says how to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shared.choices import DATA_BYTES, Choice
from shared.codec import storable
from shared.platforms.facts import ButtonLimits, Limit, utf8_bytes


def buttons_of(choices: Sequence[Choice], limits: ButtonLimits | None, text: str) -> tuple[Choice, ...]:
    """The buttons below the last message of a question. All or none: of too many, too long or equal ones, none."""
    if limits is None or len(choices) > limits.count:
        return ()
    if limits.text is not None and limits.text.measure(text) > limits.text.units:
        return ()
    found = tuple(replace(choice, label=_shortened(choice.label, limits.label)) for choice in choices)
    labels = {choice.label for choice in found}
    fits = all(choice.label and utf8_bytes(choice.command) <= DATA_BYTES for choice in found)
    return found if fits and len(labels) == len(found) else ()


def _shortened(label: str, limit: Limit) -> str:
    """The words in one line, cut where they are too long."""
    shown = label = storable(" ".join(label.split()))
    while label and limit.measure(shown) > limit.units:
        label = label[:-1]
        shown = label.rstrip() + "…"
    return shown
