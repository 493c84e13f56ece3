"""What is still to be said where a draft shows the beginning of an answer and cannot be changed any more."""

from __future__ import annotations

from dataclasses import replace

from shared.messages import Part
from workers.delivery.split import rest_of


def missing(part: Part) -> Part | None:
    """The part with the text that its draft does not show, as a new message; the whole, where nobody knows what the draft shows.
    None: the draft shows everything."""
    text = rest_of(part.text, part.shown)
    return replace(part, text=text, edits=None) if text else None
