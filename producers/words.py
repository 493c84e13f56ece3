"""What platforms send that is neither text nor a file, in words. The same on every platform."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from producers.fields import text
from shared.errors import Malformed


def place_in_words(place: dict[str, Any], labels: Iterable[str | None] = ()) -> str:
    """A place on earth, and what it is called. Malformed where it is none."""
    axes = [place.get(axis) for axis in ("latitude", "longitude")]
    if not all(type(axis) in (int, float) for axis in axes):
        raise Malformed("latitude or longitude is not a number")
    where, called = f"{axes[0]}, {axes[1]}", ", ".join(filter(None, labels))
    return f"Location: {called} ({where})" if called else f"Location: {where}"


def contact_in_words(called: str | None, ways: Iterable[str | None]) -> str:
    """Somebody's name, and how they can be reached."""
    return ", ".join([f"Contact: {called or 'without a name'}", *filter(None, ways)])


def poll_in_words(poll: dict[str, Any], options: Iterable[dict[str, Any]]) -> str:
    """A question, and the answers that may be chosen."""
    choices = [f"- {text(option, 'text') or ''}" for option in options]
    return "\n".join([f"Poll: {text(poll, 'question') or ''}", *choices])
