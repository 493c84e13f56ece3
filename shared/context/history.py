"""The window of a transcript that the model sees.

It begins with a user's row, or with the proactive delivery that he answers; every tool result has its call and every call
its result; it fits the caps. What was consolidated into a summary is left out, save for the end of the conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo

from shared.context.legal import aligned, first_user, last_user, without_open_calls
from shared.context.marks import HIDDEN, is_user
from shared.context.replay import shown
from shared.context.tokens import row_tokens
from shared.messages import Entry

CONSOLIDATED_ROWS = 8  # of what is summarised already, this much is shown all the same


def window(
    entries: Sequence[Entry],
    *,
    cap: int = 0,
    budget: int | None = None,
    consolidated: int = 0,
    extend_to_user: bool = False,
    at_least: int = 1,
    times_in: tzinfo | None = None,
    tokens: Callable[[Entry], int] = row_tokens,
) -> tuple[Entry, ...]:
    """The rows for the model, ready to be sent.

    `cap` counts rows (0: all), `budget` tokens. The first `consolidated` rows are in a summary. The last `at_least` rows
    are never cut: they are what the model is to answer. `times_in` puts the time on users' rows.
    """
    rows = _capped(entries, max(cap, at_least) if cap else 0, consolidated, extend_to_user)
    visible = [line for row in aligned(rows) if (line := shown(row, times_in=times_in)) is not None]
    visible = list(aligned(without_open_calls(visible)))
    if budget is not None:
        visible = list(_within(visible, budget, at_least, tokens))
    return tuple(visible)


def public(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The rows that people are shown: commands too, automation not."""
    return tuple(entry for entry in entries if not entry.data.get(HIDDEN))


def _capped(entries: Sequence[Entry], cap: int, consolidated: int, extend_to_user: bool) -> Sequence[Entry]:
    start = replay_start(entries, consolidated)
    fresh = len(entries) - consolidated
    if not cap or (start < consolidated and fresh <= cap):  # the last turn is replayed whole, however long it was
        return entries[start:]
    start = max(start, len(entries) - cap)
    if extend_to_user and first_user(entries[start:]) is None and (asked := last_user(entries)) is not None:
        start = asked
    return entries[start:]


def replay_start(entries: Sequence[Entry], consolidated: int) -> int:
    """Where the window may begin when the first rows are in a summary."""
    if consolidated <= 0:
        return 0
    recent = max(0, len(entries) - CONSOLIDATED_ROWS)
    begun = next((n for n in range(recent, -1, -1) if n < len(entries) and is_user(entries[n])), recent)
    return min(consolidated, begun)


def _within(rows: Sequence[Entry], budget: int, at_least: int, tokens: Callable[[Entry], int]) -> Sequence[Entry]:
    """The end of the rows that fits; more than fits rather than an end without the user's row it answers."""
    spent, start = 0, len(rows)
    while start and (spent + (cost := tokens(rows[start - 1])) <= budget or len(rows) - start < at_least):
        spent += cost
        start -= 1
    kept = rows[start:]
    if first_user(kept) is None and (asked := last_user(rows)) is not None:
        kept = rows[asked:]
    return aligned(kept)
