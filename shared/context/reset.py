"""When a conversation ends by itself: after lying idle, at an hour of the day, both, or never.

Times are instants; the hour of a daily reset is one of the deployment's time zone, also on the days when its clocks change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal

from shared.messages import Source
from shared.platforms import FOR_PROGRAMS
from shared.value import value

Mode = Literal["none", "idle", "daily", "both"]
Reason = Literal["idle", "daily"]


@value
class ResetPolicy:
    """When a conversation begins anew by itself, and who is told. It refuses values that mean nothing."""

    mode: Mode = "none"
    at_hour: int = 4
    idle_minutes: int = 1440
    notify: bool = True
    notify_exclude: tuple[str, ...] = FOR_PROGRAMS

    def __post_init__(self) -> None:
        if self.mode not in ("none", "idle", "daily", "both"):
            raise ValueError("a reset policy is none, idle, daily or both")
        if not 0 <= self.at_hour <= 23 or self.idle_minutes < 1:
            raise ValueError("a reset policy has an hour from 0 to 23 and at least one idle minute")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ResetPolicy:
        """A policy as written in a file: what is left out or empty there is the default."""
        known = {f.name for f in fields(cls)}
        given = {name: value for name, value in values.items() if value is not None}
        if unknown := sorted(given.keys() - known):
            raise ValueError(f"a reset policy has no {', '.join(unknown)}")
        if "notify_exclude" in given:
            given["notify_exclude"] = tuple(given["notify_exclude"])
        return cls(**given)

    def reason(self, last_active: datetime, now: datetime, zone: tzinfo) -> Reason | None:
        """Why the conversation is over, or None while it is not. Idleness is looked at first."""
        last_active, now = last_active.astimezone(UTC), now.astimezone(UTC)
        if self.mode in ("idle", "both") and now - last_active > timedelta(minutes=self.idle_minutes):
            return "idle"
        if self.mode in ("daily", "both") and last_active < self.boundary(now, zone):
            return "daily"
        return None

    def horizon(self, now: datetime, zone: tzinfo) -> datetime | None:
        """What was active last before this is over; None where nothing ever is."""
        ends = [now - timedelta(minutes=self.idle_minutes)] if self.mode in ("idle", "both") else []
        ends += [self.boundary(now, zone)] if self.mode in ("daily", "both") else []
        return max(ends, default=None)

    def boundary(self, now: datetime, zone: tzinfo) -> datetime:
        """The daily reset that came last."""
        today = now.astimezone(zone).replace(hour=self.at_hour, minute=0, second=0, microsecond=0, fold=0)
        if today.astimezone(UTC) > now.astimezone(UTC):
            today -= timedelta(days=1)  # on the wall clock: the same hour of the day before
        return today.astimezone(UTC)

    def tells(self, platform: str) -> bool:
        """Whether the chat hears that its conversation was ended."""
        return self.notify and platform not in self.notify_exclude


NEVER = ResetPolicy()


@value
class ResetPolicies:
    """The policy of a platform, else of a chat type, else the default: each one whole, never mixed."""

    default: ResetPolicy = NEVER
    by_type: Mapping[str, ResetPolicy] = field(default_factory=dict)
    by_platform: Mapping[str, ResetPolicy] = field(default_factory=dict)

    def ending(self) -> tuple[ResetPolicy, ...]:
        """Every policy among them that ends anything."""
        listed = dict.fromkeys((self.default, *self.by_type.values(), *self.by_platform.values()))
        return tuple(policy for policy in listed if policy.mode != "none")

    def of(self, source: Source) -> ResetPolicy:
        """A thread is about one thing and ends with it: only a policy for threads ends it earlier."""
        if source.chat_type == "thread" or (source.thread and source.chat_type != "dm"):
            return self.by_type.get("thread", NEVER)
        return self.by_platform.get(source.platform) or self.by_type.get(source.chat_type) or self.default
