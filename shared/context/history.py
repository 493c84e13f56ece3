"""The window of a transcript that the model sees.

It begins with a user's row, or with the proactive delivery that they answer; every tool result has its call and every call
its result; it fits the caps. Rows that are in a summary are not among those that it is given: they are inactive.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from shared.context.legal import aligned, first_user, last_user
from shared.context.marks import is_user
from shared.context.replay import shown
from shared.context.tokens import row_tokens
from shared.messages import Entry

CONSOLIDATED_ROWS = 8  # of what is summarised already, this much is shown all the same


def window(
    entries: Sequence[Entry],
    *,
    cap: int = 0,
    budget: int | None = None,
    at_least: int = 1,
    times_in: tzinfo | None = None,
) -> tuple[Entry, ...]:
    """The rows for the model, ready to be sent.

    `cap` counts rows (0: all), `budget` tokens. The last `at_least` rows are never cut: they are what the model is to
    answer. `times_in` puts the time on users' rows.
    """
    rows = entries[-max(cap, at_least) :] if cap else entries
    visible = aligned([line for row in rows if (line := shown(row, times_in=times_in)) is not None])
    return tuple(visible if budget is None else _within(visible, budget, at_least))


def replay_start(entries: Sequence[Entry], consolidated: int) -> int:
    """Where the window may begin when the first rows are in a summary."""
    if consolidated <= 0:
        return 0
    recent = max(0, len(entries) - CONSOLIDATED_ROWS)
    begun = next((n for n in range(recent, -1, -1) if n < len(entries) and is_user(entries[n])), recent)
    return min(consolidated, begun)


def _within(rows: Sequence[Entry], budget: int, at_least: int) -> Sequence[Entry]:
    """The end of the rows that fits; more than fits rather than an end without the user's row it answers."""
    spent, start = 0, len(rows)
    while start and (spent + (cost := row_tokens(rows[start - 1])) <= budget or len(rows) - start < at_least):
        spent += cost
        start -= 1
    kept = rows[start:]
    if first_user(kept) is None and (asked := last_user(rows)) is not None:
        kept = rows[asked:]
    return aligned(kept)
