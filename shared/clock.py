"""Wall-clock milliseconds: for display, signature windows and age, never to measure a duration."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def moment(ms: int) -> datetime:
    """The time that a store keeps as milliseconds, in UTC."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def iso(at: int | datetime) -> str:
    """A time as text for people and programs: UTC, to the millisecond. A number is milliseconds since 1970."""
    at = moment(at) if isinstance(at, int) else at.astimezone(UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
