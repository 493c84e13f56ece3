"""Accounting: what answers cost, per session, owner, agent, model and day.

A turn's usage is written by the turn's own commit, so it is counted once and only if the turn counts. Questions aside
(titles, summaries, what is worth remembering) are counted by `aside`, right after they were answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any

from shared.clock import now_ms
from shared.context.marks import USAGE
from shared.messages import Entry
from shared.store.change import Also
from shared.store.database import Database, Row, step
from shared.value import value

NANO = 10**9
EVER = ""  # before all days
_COUNTS = ("requests", "input", "output", "cache_read", "cache_write", "total")


@value
class Spent:
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
    def of(cls, row: Row) -> Spent:
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


class Usage:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def aside(self, usage: Mapping[str, Any], whose: Whose, day: str) -> None:
        """Count a question that no turn asked. Its prompt says nothing of the conversation's length."""
        row = {**_row(usage, whose, day), "last_prompt": None}
        await self._database.write(step("usage_aside", session_id=whose.session_id, now=now_ms(), **row))

    async def of_session(self, session_id: str) -> tuple[Spent, int]:
        """What a session has cost, and the tokens of its last prompt."""
        spent, last = await self._database.read(
            step("usage_of_session", session_id=session_id), step("usage_last_prompt", session_id=session_id)
        )
        return Spent.of(spent[0]), last[0]["last_prompt"] if last else 0

    async def of_owner(self, owner: str, since: str = EVER) -> Spent:
        [rows] = await self._database.read(step("usage_of_owner", owner=owner, day=since))
        return Spent.of(rows[0])

    async def of_all(self, since: str = EVER) -> Spent:
        [rows] = await self._database.read(step("usage_of_day", day=since))
        return Spent.of(rows[0])

    async def by(self, group: str, since: str, limit: int) -> list[tuple[str, Spent]]:
        column = "owner" if group == "user" else group
        [rows] = await self._database.read(step(f"usage_by_{column}", day=since, limit=limit))
        return [(row["name"], Spent.of(row)) for row in rows]


def turns_usage(entries: Sequence[Entry], whose: Whose, day: str) -> tuple[Also, ...]:
    """What a commit writes for the answers in it: one statement per model, none where nothing was spent."""
    by_model: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if not (usage := entry.data.get(USAGE)) or not isinstance(usage, Mapping):
            continue
        row = _row(usage, whose, day)
        known = by_model.setdefault(row["model"], row)
        if known is not row:
            added = (*_COUNTS, "cost_nano", "priced")
            by_model[row["model"]] = {**row, **{name: known[name] + row[name] for name in added}}
    return tuple(Also("commit_usage", row) for row in by_model.values())


def has_usage(entries: Sequence[Entry]) -> bool:
    return any(USAGE in entry.data for entry in entries)


def day_of(ms: int, zone: tzinfo = UTC) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=zone).date().isoformat()


def _row(usage: Mapping[str, Any], whose: Whose, day: str) -> dict[str, Any]:
    counts = {name: _count(usage.get(name)) for name in _COUNTS}
    counts["requests"] = counts["requests"] or 1
    counts["total"] = counts["total"] or counts["input"] + counts["output"]
    cost = _nano(usage.get("cost_usd"))
    about = {"owner": whose.owner, "agent": whose.agent, "model": str(usage.get("model") or ""), "day": day}
    priced = {"cost_nano": cost or 0, "priced": counts["requests"] if cost is not None else 0}
    return {**about, **counts, **priced, "last_prompt": _count(usage.get("prompt"))}


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
