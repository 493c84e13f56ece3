"""Which of the slots that have come run, and that every slot has a state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.schedules.rule import At, Every
from shared.schedules.schedule import Missed, Overlap, Schedule
from shared.schedules.slots import LONGEST_WINDOW_MS, ON_TIME_MS, PAGE, SlotState, is_late, judge, window_ms

MINUTE, HOUR = 60_000, 3_600_000
START = 1_794_916_800_000
FIRED, MISSED = SlotState.FIRED, SlotState.MISSED


def hourly(**changes: object) -> Schedule:
    schedule = Schedule("sch_1", "n", "", "main", Every(HOUR, START), "text", (), due_at=START + HOUR)
    return replace(schedule, **changes)  # type: ignore[arg-type]


def states(schedule: Schedule, now: int) -> list[tuple[int, SlotState]]:
    return [((slot.at_ms - START) // HOUR, slot.state) for slot in judge(schedule, now).slots]


def test_a_slot_that_has_not_come_is_left_alone() -> None:
    judged = judge(hourly(), START + HOUR - 1)
    assert (judged.slots, judged.next_at, judged.fires) == ((), START + HOUR, False)


@pytest.mark.parametrize("missed", list(Missed))
@pytest.mark.parametrize("late_ms", [0, ON_TIME_MS])
def test_a_slot_on_time_fires_whatever_the_policy(missed: Missed, late_ms: int) -> None:
    judged = judge(hourly(missed=missed), START + HOUR + late_ms)
    assert judged.fires and judged.next_at == START + 2 * HOUR
    assert judged.slots[-1].reason is None


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        (Missed.LAST, [(1, MISSED), (2, MISSED), (3, FIRED)]),
        (Missed.ALL, [(1, MISSED), (2, FIRED)]),  # the next step goes on with the third
        (Missed.SKIP, [(1, MISSED), (2, MISSED), (3, MISSED)]),
    ],
)
def test_late_slots_run_by_policy_within_the_window(missed: Missed, expected: list[tuple[int, SlotState]]) -> None:
    now = START + 3 * HOUR + 10 * MINUTE
    assert states(hourly(missed=missed, window_ms=90 * MINUTE), now) == expected


def test_what_is_later_than_the_window_does_not_run() -> None:
    assert states(hourly(), START + HOUR + 31 * MINUTE) == [(1, MISSED)]
    assert states(hourly(), START + HOUR + 29 * MINUTE) == [(1, FIRED)]


def test_waiting_for_its_turn_makes_no_slot_later() -> None:
    found_late = START + HOUR + 29 * MINUTE
    assert states(hourly(late_since=found_late), found_late + 5 * MINUTE) == [(1, FIRED)]


@pytest.mark.parametrize(
    ("period_ms", "window"), [(1000, 2 * MINUTE), (HOUR, HOUR // 2), (24 * HOUR, LONGEST_WINDOW_MS)]
)
def test_the_window_is_half_a_period_within_bounds(period_ms: int, window: int) -> None:
    assert window_ms(hourly(rule=Every(period_ms, START)), START) == window
    assert window_ms(hourly(window_ms=5), START) == 5


def test_what_was_asked_for_once_still_runs_hours_later() -> None:
    once = hourly(rule=At(START), due_at=START)
    judged = judge(once, START + 5 * HOUR)
    assert judged.fires and judged.next_at is None
    assert not judge(once, START + 25 * HOUR).fires


def test_a_long_absence_is_looked_at_in_pages_and_every_slot_has_a_state() -> None:
    schedule, now = hourly(rule=Every(1000, START), due_at=START + 1000), START + 1200 * 1000
    seen: list[tuple[int, SlotState]] = []
    while schedule.due_at is not None and schedule.due_at <= now:
        judged = judge(schedule, now)
        assert 0 < len(judged.slots) <= PAGE
        seen += [(slot.at_ms, slot.state) for slot in judged.slots]
        schedule = replace(schedule, due_at=judged.next_at)
    assert [at for at, _ in seen] == [START + n * 1000 for n in range(1, 1201)]
    assert [at for at, state in seen if state is FIRED] == [now - ms for ms in range(ON_TIME_MS, -1, -1000)]


def test_lateness_begins_when_a_slot_is_no_longer_on_time() -> None:
    assert not is_late(hourly(), START + HOUR + ON_TIME_MS)
    assert is_late(hourly(), START + HOUR + ON_TIME_MS + 1)
    assert not is_late(hourly(due_at=None), START)


def test_a_slot_has_one_inbound_and_a_run_by_hand_another() -> None:
    schedule = hourly(owner="irc:u=1")
    first, again, by_hand = schedule.fire(5, 7), schedule.fire(5, 8), schedule.fire(5, 7, manual=True)
    assert first.id == again.id != by_hand.id and first.owner == "irc:u=1"
    assert str(schedule.key(5)) == str(schedule.key(6)) == "agent:main:schedule:dm:sch_1"
    beside = replace(schedule, overlap=Overlap.ALL)
    assert str(beside.key(5)) != str(beside.key(6)) and beside.fire(5, 7).source.thread == "5"
