"""Ends the sessions of work that is over, so that retention finds them: of background tasks and of schedules. Nobody says /new there.

A key is noted by the transaction that forgets its work, and its session ends when no message of the key waits any more: the commit of
a turn that still runs would let the session go on. After a crash the note is still there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from shared.codec import encode_text
from shared.session_key import SessionKey
from shared.store import facts
from shared.store.database import Database
from shared.store.database.statements import Step, declared

ENDING = "ending"  # the scope of their keys
TASK_ENDED, SCHEDULE_REMOVED = "task_ended", "schedule_removed"  # why sessions ended


class EndingsSql(Protocol):
    """The statements of endings.sql, with the values that each needs."""

    def note_endings(self, *, keys: str) -> Step: ...
    def flush_endings(self, *, now: int) -> Step: ...
    def end_noted(self, *, now: int) -> Step: ...
    def forget_endings(self) -> Step: ...


sql = declared(EndingsSql)


def to_end(keys: Iterable[SessionKey], reason: str) -> Step:
    """Note that the sessions of some keys are to end."""
    return sql.note_endings(keys=encode_text([{"key": key, "reason": reason} for key in sorted({*map(str, keys)})]))


async def end_sessions(database: Database, now: int) -> None:
    """End the sessions of all keys that were noted, except where a message waits."""
    [noted] = await database.read(facts.sql.facts_of(scope=ENDING))
    if noted:
        await database.write(sql.flush_endings(now=now), sql.end_noted(now=now), sql.forget_endings())
