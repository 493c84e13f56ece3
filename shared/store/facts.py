"""Facts: small named values that a turn needs, by scope. A commit changes them (`Change.facts`), in its one transaction.

| scope | name | value |
|---|---|---|
"""

from __future__ import annotations

from shared.store.database import Database, step


class Facts:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, scope: str) -> dict[str, str]:
        [rows] = await self._database.read(step("facts_of", scope=scope))
        return {row["name"]: row["value"] for row in rows}
