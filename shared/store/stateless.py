"""Stateless requests: messages that bring their history along and belong to no conversation. Tables: inbox, outbox, sessions,
routes, facts.

Such a message is journaled, run and committed as any other, under a key that nobody else has. Its commit writes no transcript,
and a fact that says: forget this. Whoever waited for the answer forgets it then; where they died first, a housekeeper does.
What stays has no words: the journal's row, the turn, and what was spent. A dead letter stays until an operator drops it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from shared.clock import now_ms
from shared.store.change import Change
from shared.store.database import Database
from shared.store.database.statements import Step, declared

SCOPE = "stateless"


class StatelessSql(Protocol):
    """The statements of stateless.sql, with the values that each needs."""

    def stateless_ended(self, *, before: int, limit: int) -> Step: ...
    def stateless_outbox(self, *, id: str) -> Step: ...
    def stateless_facts(self, *, id: str) -> Step: ...
    def stateless_session(self, *, id: str) -> Step: ...
    def stateless_route(self, *, id: str) -> Step: ...
    def stateless_inbox(self, *, id: str) -> Step: ...
    def stateless_done(self, *, id: str) -> Step: ...


sql = declared(StatelessSql)


def to_be_forgotten(message_id: str, change: Change) -> Change:
    """The change of a commit that ends a stateless request."""
    return replace(change, facts={**change.facts, (SCOPE, message_id): str(now_ms())})


class StatelessRequests:
    """Forgets requests that have ended. Anybody may do it, and do it again."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def forget(self, message_id: str) -> None:
        """Remove the words of a stateless request that has ended. Of any other message, nothing is removed."""
        await self._database.write(
            sql.stateless_outbox(id=message_id),
            sql.stateless_facts(id=message_id),
            sql.stateless_session(id=message_id),
            sql.stateless_route(id=message_id),
            sql.stateless_inbox(id=message_id),
            sql.stateless_done(id=message_id),
        )

    async def ended(self, *, older_than_ms: int, limit: int) -> Sequence[str]:
        """The ids of requests that ended so long ago and are not forgotten yet."""
        [rows] = await self._database.read(sql.stateless_ended(before=now_ms() - older_than_ms, limit=limit))
        return [row["name"] for row in rows]
