"""Whether a provider would take rows as they are."""

from __future__ import annotations

from collections.abc import Sequence

from shared.context.legal import paired
from shared.messages import Entry


def is_legal(rows: Sequence[Entry]) -> bool:
    """Every tool result follows its call and every call has its result."""
    return paired(rows) == list(rows)
