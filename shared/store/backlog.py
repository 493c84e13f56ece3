"""How much waits in tables inbox, outbox and dead: what `status`, gauges and health checks show. Nothing is written here."""

from __future__ import annotations

from typing import Protocol

from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared


class BacklogSql(Protocol):
    """The statements of backlog.sql, with the values that each needs."""

    def backlog(self) -> Step: ...


sql = declared(BacklogSql)


async def backlog(database: Database) -> Row:
    """How many inbounds, parts and dead letters wait, and since when (wall clock, ms; None where none waits)."""
    [rows] = await database.read(sql.backlog())
    return rows[0]
