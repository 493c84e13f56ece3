"""Schedules as people and programs see them."""

from __future__ import annotations

from datetime import datetime

from shared.clock import moment, now_ms
from shared.errors import NotFound
from shared.schedules.rule import next_times
from shared.schedules.schedule import Schedule, ScheduleState
from shared.store import Store
from shared.store.database import Row
from shared.value import value

NEXT_TIMES = 3
LAST_SLOTS = 5  # of each schedule in a list


@value
class ShownSchedule:
    """A schedule, with its rule in words and its next times."""

    id: str
    name: str
    state: str
    when: str
    next: tuple[datetime, ...]
    to: tuple[str, ...]
    owner: str
    missed: str
    overlap: str
    text: str
    reason: str | None = None


@value
class ShownSlot:
    """A slot that has come. `turn` is the state of its message, where it fired."""

    at: datetime
    state: str
    reason: str | None
    by_hand: bool
    id: str | None
    turn: str | None

    @property
    def outcome(self) -> str:
        """How it ended, in a word: the state of its message where it fired, else why it did not run."""
        return (self.turn or "forgotten") if self.state == "fired" else self.state


@value
class ScheduleAndSlots:
    """A schedule with what became of its slots."""

    schedule: ShownSchedule
    slots: tuple[ShownSlot, ...]  # the newest first


def shown(schedule: Schedule, now: int) -> ShownSchedule:
    """The schedule as it is shown. Its name and text are somebody's words: show them as text only."""
    times: tuple[int, ...] = ()
    if schedule.state is ScheduleState.ACTIVE and schedule.due_at is not None:
        times = (schedule.due_at, *next_times(schedule.rule, schedule.due_at, NEXT_TIMES - 1))
    return ShownSchedule(
        schedule.id,
        schedule.name,
        schedule.state.value,
        schedule.rule.words,
        tuple(map(moment, times)),
        tuple(map(str, schedule.targets)),
        schedule.owner,
        schedule.missed.value,
        schedule.overlap.value,
        schedule.text,
        schedule.reason,
    )


async def listed_schedules(store: Store, limit: int, owner: str | None = None) -> tuple[ShownSchedule, ...]:
    """The schedules of everybody, or of one owner, oldest first."""
    now = now_ms()
    return tuple(shown(schedule, now) for schedule in await store.schedules.listed(limit, owner))


@value
class SchedulePage:
    """Schedules with their newest slots; those that this version cannot read, by id, each with the reason; and where the next
    page begins."""

    schedules: tuple[ScheduleAndSlots, ...]
    unreadable: dict[str, str]
    more: tuple[int, str] | None


async def schedule_page(store: Store, state: ScheduleState | None, limit: int, after: tuple[int, str]) -> SchedulePage:
    """Some schedules of everybody, of one state where it is given, oldest first, after a place."""
    now = now_ms()
    found, unreadable, more = await store.schedules.page(after, state.value if state is not None else None, limit)
    fires = await store.schedules.last_fires_of([schedule.id for schedule in found], LAST_SLOTS)
    pairs = zip(found, fires, strict=True)
    schedules = tuple(ScheduleAndSlots(shown(schedule, now), tuple(map(_slot, rows))) for schedule, rows in pairs)
    return SchedulePage(schedules, unreadable, more)


async def one_schedule(store: Store, id: str, limit: int) -> ScheduleAndSlots:
    """A schedule and its newest slots."""
    schedule = await store.schedules.find(id)
    if schedule is None:
        raise NotFound(f"there is no schedule {id:.60}: see `keyturn schedule list`")
    rows = await store.schedules.last_fires(id, limit)
    return ScheduleAndSlots(shown(schedule, now_ms()), tuple(map(_slot, rows)))


def _slot(row: Row) -> ShownSlot:
    by_hand, id = bool(row["manual"]), row["inbound_id"]
    return ShownSlot(moment(row["slot"]), row["state"], row["reason"], by_hand, id, row["turn"])
