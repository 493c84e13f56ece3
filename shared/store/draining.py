"""Which Redis servers are drained, in table draining_redis: here all processes of a deployment see it."""

from __future__ import annotations

from typing import Protocol

from shared.clock import now_ms
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.pauses import WHO_LIMIT


class DrainingSql(Protocol):
    """The statements of draining.sql, with the values that each needs."""

    def draining_list(self) -> Step: ...
    def draining_add(self, *, name: str, who: str, now: int) -> Step: ...
    def draining_remove(self, *, name: str) -> Step: ...


sql = declared(DrainingSql)


class DrainingServers:
    """The servers that get no keys. A change is on disk when its method returns; processes follow within seconds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> list[Row]:
        """All of them, the longest first."""
        [rows] = await self._database.read(sql.draining_list())
        return rows

    async def begin(self, name: str, who: str) -> bool:
        """Drain a server. False: it was drained before, and still is."""
        [added] = await self._database.write(sql.draining_add(name=name, who=who[:WHO_LIMIT], now=now_ms()))
        return bool(added)

    async def end(self, name: str) -> bool:
        """Drain a server no longer. False: it was not."""
        [removed] = await self._database.write(sql.draining_remove(name=name))
        return bool(removed)
