"""The audit log: table audit. An action is on disk before it is made, so none is made unseen; its outcome follows."""

from __future__ import annotations

from typing import Protocol

from shared.clock import now_ms
from shared.codec import storable
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared

TEXT_LIMIT = 2000  # characters of a target or an outcome


class AuditSql(Protocol):
    """The statements of audit.sql, with the values that each needs."""

    def audit_begin(self, *, now: int, who: str, role: str, action: str, target: str) -> Step: ...
    def audit_end(self, *, id: int, outcome: str) -> Step: ...
    def audit_list(self, *, before: int, limit: int) -> Step: ...


sql = declared(AuditSql)


class Audit:
    """What operators did. Only RETENTION__AUDIT_DAYS removes rows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, who: str, role: str, action: str, target: str) -> int:
        """Write an action down. On disk when this returns; gives the row's number."""
        row = sql.audit_begin(now=now_ms(), who=who, role=role, action=action, target=storable(target[:TEXT_LIMIT]))
        [rows] = await self._database.write(row)
        number: int = rows[0]["id"]
        return number

    async def end(self, id: int, outcome: str) -> None:
        """Write down how it ended."""
        await self._database.write(sql.audit_end(id=id, outcome=storable(outcome[:TEXT_LIMIT])))

    async def page(self, before: int, limit: int) -> list[Row]:
        """Actions before a number, newest first."""
        [rows] = await self._database.read(sql.audit_list(before=before, limit=limit))
        return rows
