"""Accounting: what answers cost, per session, owner, agent, model and day.

A turn's usage is written by the turn's own commit (batch.sql), so it is counted once and only if the turn counts. Questions aside
(titles, summaries, what is worth remembering) are counted by `aside`, right after they were answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from time import monotonic
from typing import Any, Protocol, TypedDict, Unpack

from shared.clock import now_ms
from shared.context.marks import USAGE
from shared.messages import Entry
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.value import value

NANO = 10**9
EVER = ""  # before all days
ROWS_PER_SECOND = 5000  # that a look adds up on average: about half a percent of a core
_COUNTS = ("requests", "input", "output", "cache_read", "cache_write", "total")


@value
class SpentInAll:
    """What something cost. The cost is `estimated`, `unknown`, or `mixed`: then it is known of some requests only."""

    requests: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0
    cost_usd: Decimal = Decimal(0)
    cost: str = "unknown"

    @classmethod
    def of(cls, row: Row) -> SpentInAll:
        counts = {name: int(row[name] or 0) for name in _COUNTS}
        priced = int(row["priced"] or 0)
        status = "unknown" if not priced else "estimated" if priced >= counts["requests"] else "mixed"
        return cls(**counts, cost_usd=Decimal(int(row["cost_nano"] or 0)) / NANO, cost=status)


@value
class Whose:
    """Who pays: the session, its owner and the agent that answers there."""

    session_id: str
    owner: str
    agent: str


class Counted(TypedDict):
    """What some requests of one model cost, as table usage adds it up."""

    owner: str
    agent: str
    model: str
    day: str
    requests: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    total: int
    cost_nano: int
    priced: int
    last_prompt: int | None


class CountedAside(Counted):
    """A row of table usage for a question that no turn asked."""

    session_id: str
    now: int


class UsageSql(Protocol):
    """The statements of usage.sql, with the values that each needs."""

    def usage_aside(self, **counted: Unpack[CountedAside]) -> Step: ...
    def usage_of_session(self, *, session_id: str) -> Step: ...
    def usage_last_prompt(self, *, session_id: str) -> Step: ...
    def usage_of_owner(self, *, owner: str, day: str) -> Step: ...
    def usage_of_day(self, *, day: str) -> Step: ...
    def usage_by_owner(self, *, day: str, limit: int) -> Step: ...
    def usage_by_agent(self, *, day: str, limit: int) -> Step: ...
    def usage_by_model(self, *, day: str, limit: int) -> Step: ...
    def usage_by_day(self, *, day: str, limit: int) -> Step: ...


sql = declared(UsageSql)


class Usage:
    """What models have cost, by session, owner, agent, model and day."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lately: tuple[float, str, SpentInAll] | None = (
            None  # until when it counts as new, since which day, the sum
        )

    async def aside(self, usage: Mapping[str, Any], whose: Whose, day: str) -> None:
        """Count a question that no turn asked. Its prompt says nothing of the conversation's length."""
        counted: Counted = {**_counted(usage, whose, day), "last_prompt": None}
        await self._database.write(sql.usage_aside(session_id=whose.session_id, now=now_ms(), **counted))

    async def of_session(self, session_id: str) -> tuple[SpentInAll, int]:
        """What a session has cost, and the tokens of its last prompt."""
        spent, last = await self._database.read(
            sql.usage_of_session(session_id=session_id), sql.usage_last_prompt(session_id=session_id)
        )
        return SpentInAll.of(spent[0]), last[0]["last_prompt"] if last else 0

    async def of_owner(self, owner: str, since: str = EVER) -> SpentInAll:
        """What an owner has spent since a day."""
        [rows] = await self._database.read(sql.usage_of_owner(owner=owner, day=since))
        return SpentInAll.of(rows[0])

    async def of_all(self, since: str = EVER) -> SpentInAll:
        """What everybody together has spent since a day."""
        [rows] = await self._database.read(sql.usage_of_day(day=since))
        return SpentInAll.of(rows[0])

    async def of_all_lately(self, since: str) -> SpentInAll:
        """The same for whoever looks again and again. The sum is kept the longer the more rows it adds up: a hundred of them a
        fiftieth of a second, 100,000 of them 20 seconds."""
        if self._lately is not None and self._lately[1] == since and monotonic() < self._lately[0]:
            return self._lately[2]
        [rows] = await self._database.read(sql.usage_of_day(day=since))
        found = SpentInAll.of(rows[0])
        self._lately = monotonic() + rows[0]["rows"] / ROWS_PER_SECOND, since, found
        return found

    async def by(self, group: str, since: str, limit: int) -> list[tuple[str, SpentInAll]]:
        """What was spent since a day by `user`, `agent`, `model` or `day`."""
        grouped = {
            "user": sql.usage_by_owner,
            "agent": sql.usage_by_agent,
            "model": sql.usage_by_model,
            "day": sql.usage_by_day,
        }
        [rows] = await self._database.read(grouped[group](day=since, limit=limit))
        return [(row["name"], SpentInAll.of(row)) for row in rows]


def turns_usage(entries: Sequence[Entry], whose: Whose, day: str) -> tuple[Counted, ...]:
    """What a commit counts for the answers in it: one row per model, none where nothing was spent."""
    by_model: dict[str, Counted] = {}
    for entry in entries:
        if not (usage := entry.data.get(USAGE)) or not isinstance(usage, Mapping):
            continue
        row = _counted(usage, whose, day)
        known = by_model.get(row["model"])
        by_model[row["model"]] = row if known is None else _sum(known, row)
    return tuple(by_model.values())


def _sum(earlier: Counted, later: Counted) -> Counted:
    """Both together; the last prompt is the later one's."""
    return {
        **later,
        "requests": earlier["requests"] + later["requests"],
        "input": earlier["input"] + later["input"],
        "output": earlier["output"] + later["output"],
        "cache_read": earlier["cache_read"] + later["cache_read"],
        "cache_write": earlier["cache_write"] + later["cache_write"],
        "total": earlier["total"] + later["total"],
        "cost_nano": earlier["cost_nano"] + later["cost_nano"],
        "priced": earlier["priced"] + later["priced"],
    }


def has_usage(entries: Sequence[Entry]) -> bool:
    """Whether any of these rows says what it cost."""
    return any(USAGE in entry.data for entry in entries)


def day_of(ms: int, zone: tzinfo = UTC) -> str:
    """The day of a moment, as 2026-11-16."""
    return datetime.fromtimestamp(ms / 1000, tz=zone).date().isoformat()


def _counted(usage: Mapping[str, Any], whose: Whose, day: str) -> Counted:
    input, output = _count(usage.get("input")), _count(usage.get("output"))
    requests = _count(usage.get("requests")) or 1
    cost = _nano(usage.get("cost_usd"))
    return {
        "owner": whose.owner,
        "agent": whose.agent,
        "model": str(usage.get("model") or ""),
        "day": day,
        "requests": requests,
        "input": input,
        "output": output,
        "cache_read": _count(usage.get("cache_read")),
        "cache_write": _count(usage.get("cache_write")),
        "total": _count(usage.get("total")) or input + output,
        "cost_nano": cost or 0,
        "priced": requests if cost is not None else 0,
        "last_prompt": _count(usage.get("prompt")),
    }


def _count(value: Any) -> int:
    """An agent may say anything; what is no count is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**50 else 0


def _nano(value: Any) -> int | None:
    if value is None:
        return None
    try:
        cost = Decimal(str(value))
    except InvalidOperation:
        return None
    return int(cost * NANO) if cost.is_finite() and 0 <= cost < 10**6 else None
