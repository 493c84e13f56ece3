"""Which of the slots that have come are to run. Pure: the clock is given."""

from __future__ import annotations

from enum import StrEnum

from shared.schedules.schedule import Missed, Schedule
from shared.value import value

ON_TIME_MS = 30_000  # a slot that is no later than this is on time
SHORTEST_WINDOW_MS, LONGEST_WINDOW_MS = 2 * 60_000, 2 * 3_600_000
ONCE_WINDOW_MS = 24 * 3_600_000  # what was asked for once is still wanted a day later
PAGE = 500  # slots that are looked at in one step


class SlotState(StrEnum):
    """What became of a slot. It is recorded with the claim, and never changes."""

    FIRED = "fired"  # its turn is in the journal
    SKIPPED = "skipped"  # something else was in its way
    MISSED = "missed"  # nobody was there in time


@value
class ScheduleSlot:
    """One slot and what becomes of it."""

    at_ms: int
    state: SlotState
    reason: str | None = None


@value
class Judged:
    """The slots that have come, up to the first that is to run, and the one that comes next."""

    slots: tuple[ScheduleSlot, ...]
    next_at: int | None

    @property
    def fires(self) -> bool:
        return bool(self.slots) and self.slots[-1].state is SlotState.FIRED


def window_ms(schedule: Schedule, slot: int) -> int:
    """How late a slot may still run: half a period, between two minutes and two hours, where the schedule does not say."""
    if schedule.window_ms is not None:
        return schedule.window_ms
    period = schedule.rule.period_ms(slot)
    if period is None:
        return ONCE_WINDOW_MS
    return min(max(period // 2, SHORTEST_WINDOW_MS), LONGEST_WINDOW_MS)


def is_late(schedule: Schedule, now_ms: int) -> bool:
    """Whether the next slot was due so long ago that it is no longer on time."""
    return schedule.due_at is not None and now_ms - schedule.due_at > ON_TIME_MS


def judge(schedule: Schedule, now_ms: int) -> Judged:
    """What becomes of the slots up to now. Lateness is counted to the time when it was found: waiting for its turn makes
    no slot later."""
    seen_at = min(now_ms, schedule.late_since or now_ms)
    slots: list[ScheduleSlot] = []
    slot = schedule.due_at
    while slot is not None and slot <= now_ms and len(slots) < PAGE:
        following = schedule.rule.next_after(slot)
        judged = _judge(schedule, slot, seen_at, is_newest=following is None or following > now_ms)
        slots.append(judged)
        slot = following
        if judged.state is SlotState.FIRED:
            break
    return Judged(tuple(slots), slot)


def _judge(schedule: Schedule, slot: int, seen_at: int, *, is_newest: bool) -> ScheduleSlot:
    late_ms = seen_at - slot
    if late_ms <= ON_TIME_MS:
        return ScheduleSlot(slot, SlotState.FIRED)
    if late_ms > window_ms(schedule, slot):
        return ScheduleSlot(slot, SlotState.MISSED, "too late")
    if schedule.missed is Missed.ALL or (schedule.missed is Missed.LAST and is_newest):
        return ScheduleSlot(slot, SlotState.FIRED, "late")
    if schedule.missed is Missed.LAST:
        return ScheduleSlot(slot, SlotState.MISSED, "a later one runs")
    return ScheduleSlot(slot, SlotState.MISSED, "late")
