"""What runs by the clock: how many schedules a person may have, how often they may run, and what happens after a pause."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from shared.errors import CannotDo, Malformed
from shared.setting_values import Names
from shared.settings.section import Block, Section
from shared.targets import parse_targets


class HeartbeatSettings(Block):
    """The agent's own schedule: it looks after the open tasks in a file by itself."""

    every_minutes: float | None = Field(default=None, ge=1, le=10_080)
    """How often the agent is asked about its open tasks. Unset: never."""
    file: Path = Path("HEARTBEAT.md")
    """The tasks, as text. Headings, comments and what is ticked off (`- [x]`) are no open tasks; while there are none, nothing runs.
    The housekeepers read it."""
    to: Names = ("local",)
    """Where its answers go, as `keyturn schedule add --to`: a platform for its home channel, or a chat. `[SILENT]` goes nowhere."""

    @field_validator("to")
    @classmethod
    def _are_targets(cls, to: tuple[str, ...]) -> tuple[str, ...]:
        try:
            parse_targets(to)
        except (CannotDo, Malformed) as error:
            raise ValueError(f"SCHEDULE__HEARTBEAT__TO: {error}") from None
        return to


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
    kept_days: float = Field(default=30, ge=0)
    """What became of slots, schedules that have ended, and files under `DATA_DIR/cron/output` are removed after so many days. The
    newest 20 slots of a schedule stay. 0: all are kept for ever."""
    by_schedules: bool = False
    """Whether an agent in a scheduled turn may make further schedules."""
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    """The agent's own schedule."""


class SchedulesSettings(Section):
    """What runs by the clock."""

    TITLE = "Schedules"

    schedule: ScheduleSettings = ScheduleSettings()
    """Bounds of schedules."""
