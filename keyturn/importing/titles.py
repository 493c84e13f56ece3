"""The older gateways' titles. Some were written by models that think aloud: what they thought is no title."""

from __future__ import annotations

import re
from typing import Any

from shared.codec import storable

TITLE_LIMIT = 100
_TAG = "(?:think|thinking|thought)"
_THOUGHT = re.compile(rf"<({_TAG})>.*?</\1>", re.DOTALL | re.IGNORECASE)
_OPEN = re.compile(rf"^\s*<{_TAG}>.*", re.DOTALL | re.IGNORECASE)  # a thought that has no end
_CLOSED = re.compile(rf"\s*</{_TAG}>", re.IGNORECASE)  # the end of a thought that was cut off before


def title_of(value: Any, *, by_hand: bool = False) -> str | None:
    """A title as people see it: one line. What a person wrote stays as it is."""
    if not isinstance(value, str):
        return None
    title = value if by_hand else _without_thoughts(value)
    return " ".join(storable(title).split())[:TITLE_LIMIT] or None


def _without_thoughts(title: str) -> str:
    title = _THOUGHT.sub("", title)
    *_, title = _CLOSED.split(title)
    return _OPEN.sub("", title)
