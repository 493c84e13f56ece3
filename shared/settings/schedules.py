"""What runs by the clock: how many schedules a person may have, how often they may run, and what happens after a pause."""

from __future__ import annotations

from pydantic import Field

from shared.settings.section import Block, Section


class ScheduleSettings(Block):
    """Bounds of schedules. They hold for people and agents; an operator's own schedules are bounded by OF_OPERATOR alone."""

    per_owner: int = Field(default=20, ge=0)
    """How many schedules a person, or a chat that shares a conversation, may have. 0: only the operator makes any."""
    of_operator: int = Field(default=1000, ge=0)
    """How many schedules `keyturn schedule add` may make."""
    shortest_seconds: float = Field(default=60, ge=0)
    """The shortest time between two runs of a schedule that a person or an agent made."""
    look_seconds: float = Field(default=1, gt=0)
    """How often a housekeeper looks for schedules that another process added."""
    catch_up_seconds: float = Field(default=60, ge=0)
    """After a time when nobody was there, schedules that are late run within this time, and not all at once."""
    failures: int = Field(default=5, ge=0)
    """A schedule whose turns became dead letters this often in a row is paused, and its chat is told. 0: never."""
    by_schedules: bool = False
    """Whether an agent in a scheduled turn may make further schedules."""


class SchedulesSettings(Section):
    """What runs by the clock."""

    TITLE = "Schedules"

    schedule: ScheduleSettings = ScheduleSettings()
    """Bounds of schedules."""
