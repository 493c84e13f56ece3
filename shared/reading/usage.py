"""What answers have cost, by user, agent, model or day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from shared.value import value

if TYPE_CHECKING:  # the command line imports UsageGroup to parse its options, and not the database for that
    from shared.store import Store
    from shared.store.usage import SpentInAll

EVER = ""  # before all days


class UsageGroup(StrEnum):
    """What the lines of a usage report stand for."""

    USER = "user"
    AGENT = "agent"
    MODEL = "model"
    DAY = "day"


@value
class UsageLine:
    """What one user, agent, model or day has cost."""

    name: str
    spent: SpentInAll


async def usage(store: Store, group: UsageGroup, limit: int, days: int | None = None) -> list[UsageLine]:
    """The lines of a report over the last so many days, today included; over all time where none are named."""
    since = EVER if days is None else (datetime.now(UTC) - timedelta(days=days - 1)).date().isoformat()
    return [UsageLine(name, spent) for name, spent in await store.usage.by(group.value, since, limit)]
