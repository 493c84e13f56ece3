"""Facts: small named values that a turn needs, by scope. A commit changes them (`Change.facts`), in its one transaction.

| scope | name | value |
|---|---|---|
| session | `reset_reason` | why the conversation before it ended by itself: idle, daily or suspended. Consumed by its first turn |
| session | `reset_active` | 1: something had been said in that one, 0: not. Consumed with `reset_reason` |
| session | `resumed_at` | wall clock, ms: somebody came back to it then; it has not been idle since |
| session | `suspended` | 1: the next message begins a new session, whatever the policy |
"""

from __future__ import annotations

from shared.store.database import Database, step


class Facts:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, scope: str) -> dict[str, str]:
        [rows] = await self._database.read(step("facts_of", scope=scope))
        return {row["name"]: row["value"] for row in rows}
