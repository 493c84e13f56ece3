"""Sessions that a key leaves its own for: a copy of it (/branch), or one that had ended (/resume). Tables: sessions, messages.

These are statements for a commit (`Change.also`): they are written with it, or not at all.
"""

from __future__ import annotations

from typing import Protocol, TypedDict, Unpack

from shared.store.blob_references import branch_references
from shared.store.change import Also, Stamp
from shared.store.database.statements import Step, declared


class BranchRow(TypedDict):
    """The session `branch_id`, which begins with the first rows of `session_id`."""

    branch_id: str
    rows: int
    title: str | None
    owner: str | None
    session_id: str
    session_key: str
    turn_id: str
    now: int


class BranchesSql(Protocol):
    """The statements of branches.sql, with the values that each needs."""

    def branch_session(self, **row: Unpack[BranchRow]) -> Step: ...
    def branch_messages(self, *, branch_id: str, rows: int, session_id: str, turn_id: str) -> Step: ...
    def reopen_session(self, *, target: str, session_id: str, turn_id: str) -> Step: ...


sql = declared(BranchesSql)


def branch_into(branch_id: str, rows: int, title: str | None, owner: str | None) -> tuple[Also, ...]:
    """Open a session with a copy of this one's conversation up to row number `rows`."""

    def session(stamp: Stamp) -> Step:
        return sql.branch_session(
            branch_id=branch_id,
            rows=rows,
            title=title,
            owner=owner,
            session_id=stamp.session_id,
            session_key=stamp.session_key,
            turn_id=stamp.turn_id,
            now=stamp.now,
        )

    def messages(stamp: Stamp) -> Step:
        return sql.branch_messages(branch_id=branch_id, rows=rows, session_id=stamp.session_id, turn_id=stamp.turn_id)

    return session, messages, branch_references(branch_id)


def reopen(session_id: str) -> Also:
    """Let a session go on that had ended."""
    return lambda stamp: sql.reopen_session(target=session_id, session_id=stamp.session_id, turn_id=stamp.turn_id)
