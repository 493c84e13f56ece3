"""What stays when a transcript is cut back, and what has to be archived before the rest goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from datetime import datetime, timedelta

from shared.context.legal import aligned, first_user, last_user
from shared.messages import Entry
from shared.value import value


@value
class Retained:
    """A transcript cut back. `consolidated` counts the kept rows that are in the summary already."""

    kept: tuple[Entry, ...]
    dropped: tuple[Entry, ...]
    to_archive: tuple[Entry, ...]  # the dropped rows that no summary has yet
    consolidated: int

    @property
    def provider_state_holds(self) -> bool:
        """Whether the provider's own memory of the conversation is still true."""
        return not self.dropped


def retain(entries: Sequence[Entry], keep: int, *, consolidated: int = 0, extend_to_user: bool = False) -> Retained:
    """The last `keep` rows, as far as they are a legal beginning. Never more, unless extended to the row of the last user."""
    first, end = _kept_range(entries, keep, extend_to_user)
    dropped = (*entries[:first], *entries[end:])
    fresh_from = max(0, min(consolidated, len(entries)))
    to_archive = (*entries[fresh_from:first], *entries[max(end, fresh_from) :])
    return Retained(tuple(entries[first:end]), dropped, to_archive, max(0, min(fresh_from, end) - first))


def _kept_range(entries: Sequence[Entry], keep: int, extend_to_user: bool) -> tuple[int, int]:
    if keep <= 0:
        return len(entries), len(entries)
    if len(entries) <= keep:
        return 0, len(entries)
    start, end = len(entries) - keep, len(entries)
    if first_user(entries[start:]) is None and (asked := last_user(entries)) is not None:
        start = asked  # a long turn is being cut: its question is worth more than its last rows
        end = len(entries) if extend_to_user else asked + keep
    rows = entries[start:end]
    start += len(rows) - len(aligned(rows))
    return start, end


def is_idle(last_active: datetime | None, now: datetime, ttl: timedelta) -> bool:
    """Whether nothing has happened for the whole of `ttl`. What has no time, or a ttl of nothing, is never idle."""
    return last_active is not None and ttl > timedelta(0) and now - last_active >= ttl


@value
class Candidate:
    """A session as the look for idle ones sees it."""

    session_id: str
    last_active: datetime | None
    message_count: int
    consolidated: int


def to_compact(candidates: Iterable[Candidate], running: Set[str], now: datetime, ttl: timedelta) -> tuple[str, ...]:
    """The idle sessions with something new in them. One that runs a turn waits for a later look."""
    return tuple(
        candidate.session_id
        for candidate in candidates
        if candidate.session_id not in running
        and candidate.consolidated < candidate.message_count
        and is_idle(candidate.last_active, now, ttl)
    )


def compact(entries: Sequence[Entry], *, consolidated: int = 0) -> Retained:
    """Summarise all that is new and delete nothing: the window then shows the end of the conversation only."""
    return Retained(tuple(entries), (), tuple(entries[consolidated:]), len(entries))
