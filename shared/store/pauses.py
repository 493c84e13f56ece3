"""Pauses: what operators hold back for a while, in tables pause and pause_version."""

from __future__ import annotations

from typing import Protocol

from shared.clock import now_ms
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.value import value

WHO_LIMIT = 64  # characters


class PauseSql(Protocol):
    """The statements of pauses.sql, with the values that each needs."""

    def pause_version(self) -> Step: ...
    def pause_list(self) -> Step: ...
    def pause_add(self, *, scope: str, who: str, now: int) -> Step: ...
    def pause_remove(self, *, scope: str) -> Step: ...
    def pause_changed(self) -> Step: ...


sql = declared(PauseSql)


@value
class StoredPauses:
    """The pauses as they were at a version or later, the longest first. Version 0: there has never been one."""

    version: int
    rows: tuple[Row, ...]

    @property
    def scopes(self) -> list[str]:
        return [row["scope"] for row in self.rows]


class Pauses:
    """What is held back. A change is on disk when its method returns; enforce_pauses brings it to Redis."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> StoredPauses:
        """All pauses. The version is read first, so the rows are never older than it says."""
        version, rows = await self._database.read(sql.pause_version(), sql.pause_list())
        return StoredPauses(version[0]["version"], tuple(rows))

    async def begin(self, scope: str, who: str) -> bool:
        """Pause something. False: it was paused before, and still is."""
        row = sql.pause_add(scope=scope, who=who[:WHO_LIMIT], now=now_ms())
        [added, _] = await self._database.write(row, sql.pause_changed())
        return bool(added)

    async def end(self, scope: str) -> bool:
        """Let something go on. False: it was not paused."""
        [removed, _] = await self._database.write(sql.pause_remove(scope=scope), sql.pause_changed())
        return bool(removed)
