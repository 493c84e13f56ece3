"""What an overview shows of tables inbox, outbox, dead and sessions. Nothing is written here.

Counts stop at a bound and lists are pages by index: a look costs the same however much waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import orjson

from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared


class OverviewSql(Protocol):
    """The statements of overview.sql, with the values that each needs."""

    def overview_counts(self, *, bound: int) -> Step: ...
    def parts_oldest(self, *, bound: int) -> Step: ...
    def waiting_of_keys(self, *, keys: str) -> Step: ...
    def parts_open(self, *, destination: str, id: int, limit: int) -> Step: ...
    def parts_flagged(self, *, before: int, limit: int) -> Step: ...
    def parts_of_conversation(self, *, session_key: str, limit: int) -> Step: ...
    def destinations_open(self, *, after: str, bound: int, limit: int) -> Step: ...
    def parts_waiting(self, *, destination: str, limit: int) -> Step: ...
    def parts_buried(self, *, destination: str, bound: int, limit: int) -> Step: ...
    def dead_page(self, *, state: str, before: int, limit: int) -> Step: ...
    def dead_of_conversation(self, *, session_key: str, limit: int) -> Step: ...
    def sessions_before(self, *, before: int, before_id: str, limit: int) -> Step: ...
    def sessions_of_person(self, *, owner: str, limit: int) -> Step: ...
    def stage_moments(self, *, since: int, limit: int) -> Step: ...


sql = declared(OverviewSql)


class OverviewRows:
    """Reads pages and bounded counts of what waits, was sent and was set aside."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def counts(self, bound: int) -> Row:
        """How much waits, each count up to `bound`."""
        return (await self._rows(sql.overview_counts(bound=bound)))[0]

    async def oldest_parts(self, bound: int) -> list[Row]:
        """The time of the oldest part that is not sent yet and that no pause holds, by platform; of each, the oldest `bound`
        parts are looked at."""
        return [row for row in await self._rows(sql.parts_oldest(bound=bound)) if row["oldest"] is not None]

    async def waiting(self, keys: Sequence[str]) -> list[Row]:
        """What waits for each of these keys; keys with nothing are left out."""
        return await self._rows(sql.waiting_of_keys(keys=orjson.dumps(list(keys)).decode())) if keys else []

    async def open_parts(self, after: tuple[str, int], limit: int) -> list[Row]:
        """Parts that are not sent yet, by destination, after a destination and a number."""
        return await self._rows(sql.parts_open(destination=after[0], id=after[1], limit=limit))

    async def flagged_parts(self, before: int, limit: int) -> list[Row]:
        """Ambiguous and buried parts before a number, newest first."""
        return await self._rows(sql.parts_flagged(before=before, limit=limit))

    async def parts_of(self, session_key: str, limit: int) -> list[Row]:
        """The newest parts of a conversation, newest first."""
        return await self._rows(sql.parts_of_conversation(session_key=session_key, limit=limit))

    async def destinations(self, after: str, limit: int, bound: int) -> list[Row]:
        """Destinations with parts that wait, or were given up and are among the newest `bound` of those."""
        return await self._rows(sql.destinations_open(after=after, bound=bound, limit=limit))

    async def waiting_parts(self, destination: str, limit: int) -> list[Row]:
        """The parts that a destination waits for, in order."""
        return await self._rows(sql.parts_waiting(destination=destination, limit=limit))

    async def buried_parts(self, destination: str, limit: int, bound: int) -> list[Row]:
        """The parts of a destination whose dead letter is open, newest first, among the newest `bound` of all."""
        return await self._rows(sql.parts_buried(destination=destination, bound=bound, limit=limit))

    async def dead(self, state: str, before: int, limit: int) -> list[Row]:
        """Dead letters in a state before a number, newest first."""
        return await self._rows(sql.dead_page(state=state, before=before, limit=limit))

    async def dead_of(self, session_key: str, limit: int) -> list[Row]:
        """The newest dead letters of a conversation."""
        return await self._rows(sql.dead_of_conversation(session_key=session_key, limit=limit))

    async def sessions(self, before: tuple[int, str], limit: int) -> list[Row]:
        """Sessions before a time of last activity (wall clock, ms) and an id, the last active first."""
        return await self._rows(sql.sessions_before(before=before[0], before_id=before[1], limit=limit))

    async def sessions_of(self, owner: str, limit: int) -> list[Row]:
        """The sessions of an owner, the last active first."""
        return await self._rows(sql.sessions_of_person(owner=owner, limit=limit))

    async def stage_moments(self, since: int, limit: int) -> list[Row]:
        """When the newest answered messages since a time (wall clock, ms) passed each stage, `limit` at the most."""
        return await self._rows(sql.stage_moments(since=since, limit=limit))

    async def _rows(self, step: Step) -> list[Row]:
        [rows] = await self._database.read(step)
        return rows
