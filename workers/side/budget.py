"""Budgets per day: a turn that would begin beyond one is refused before the agent is called, and so is every other question
to a model (workers/side/questions.py).

A turn that began within the budget may end beyond it: what it costs is known when it is over. Costs that nobody knows
count as nothing, so a budget in tokens is the one that always holds.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from shared.clock import now_ms
from shared.pipeline import Pipeline
from shared.settings import Settings
from shared.store.usage import SpentInAll, day_of

ALL_SECONDS = 5.0  # how long the sum of everybody's spending is taken to be right


class Budgets:
    """Answers whether a model may be asked, by what was spent today. What all have spent is remembered for some seconds."""

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        self._limits = pipe.settings.budget
        self._all: tuple[str, float, SpentInAll] | None = None

    async def refusal(self, owner: str | None) -> str | None:
        """Why nothing may be asked for this owner, and when it may again; None: it may."""
        limits, now = self._limits, now_ms()
        day = day_at(now, self._pipe.settings)
        until = f"for today is used up. It works again from {_midnight(now, self._pipe.settings)} on."
        if limits.of_users and owner:
            spent = await self._pipe.store.usage.of_owner(owner, day)
            if _beyond(spent, limits.user_tokens_per_day, limits.user_cost_per_day):
                return f"Your budget {until}"
        if limits.of_all and _beyond(await self._of_all(day), limits.tokens_per_day, limits.cost_per_day):
            return f"The budget of this bot {until}"
        return None

    async def _of_all(self, day: str) -> SpentInAll:
        """Everybody's spending, asked now and then only: it is the sum of many rows."""
        known = self._all
        if known is None or known[0] != day or time.monotonic() - known[1] > ALL_SECONDS:
            spent = await self._pipe.store.usage.of_all(day)
            self._all = known = (day, time.monotonic(), spent)
        return known[2]


def day_at(ms: int, settings: Settings) -> str:
    """The day that usage is counted under."""
    return day_of(ms, settings.zone)


def _beyond(spent: SpentInAll, tokens: int | None, cost: float | None) -> bool:
    return (tokens is not None and spent.total >= tokens) or (cost is not None and float(spent.cost_usd) >= cost)


def _midnight(now: int, settings: Settings) -> str:
    zone = settings.zone
    today = datetime.fromtimestamp(now / 1000, tz=zone)
    begins = (today + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return begins.strftime("%Y-%m-%d %H:%M ") + (begins.tzname() or "UTC")
