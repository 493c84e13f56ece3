"""Schedules whose time has come: each slot becomes a message in the journal, once, and its schedule is moved on.

Both are one transaction that compares the schedule's due time, so several housekeepers may look at the same moment. After a
crash before it, another one finds the slot still due. After a crash behind it, the message is in the journal, and UnknownMail
fills its mailbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b

from shared import log, metrics
from shared.announcing import Announcement, announce
from shared.background import survived
from shared.clock import now_ms
from shared.errors import AlreadyDone, PipelineError, Unavailable
from shared.failpoints import reach
from shared.messages import State
from shared.permission import may_still_talk
from shared.pipeline import Pipeline
from shared.schedules.heartbeat import ID as HEARTBEAT
from shared.schedules.heartbeat import NOTHING_OPEN, heartbeat_text
from shared.schedules.schedule import Overlap, Schedule
from shared.schedules.slots import Judged, ScheduleSlot, SlotState, is_late, judge
from shared.store.schedules import Fired
from shared.targets import Target, TargetKind
from workers.upkeep.housekeeping_duty import AT_ONCE

MOST_WAITING = 100  # runs of one schedule: where they are queued, further slots are skipped
STEPS_PER_LOOK = 50  # of one schedule: the others need their turn


class DueSchedules:
    """Fires the slots that have come. A schedule that cannot be looked at holds up none of the others."""

    def __init__(self, pipe: Pipeline, clock: Callable[[], int] = now_ms) -> None:
        self.every_seconds = pipe.settings.schedule.look_seconds
        self._pipe = pipe
        self._clock = clock
        self._store = pipe.store.schedules

    async def look(self) -> float:
        """Once through all schedules that are due. Gives the seconds until the next one is, if that is sooner than usual."""
        due, unreadable, soonest = await self._store.due(self._clock(), AT_ONCE)
        for id, reason in unreadable.items():
            if await self._store.pause(id, f"cannot be read: {reason}"):
                log.get().error("schedule paused: it cannot be read", schedule=id, reason=reason)
        for schedule in due:
            try:
                await self._catch_up(schedule)
            except Unavailable:
                raise
            except Exception as error:
                survived("housekeeper", "schedule not looked at", error, schedule=schedule.id)
        if due:
            soonest = await self._store.soonest()
        if soonest is None:
            return self.every_seconds
        return min(self.every_seconds, max(0, soonest - self._clock()) / 1000)

    async def _catch_up(self, schedule: Schedule) -> None:
        """Bring a schedule to its next slot in the future, or a good way towards it."""
        for _ in range(STEPS_PER_LOOK):
            now = self._clock()
            if schedule.due_at is None or schedule.due_at > now:
                return
            if is_late(schedule, now) and schedule.late_since is None:
                await self._store.put_off(schedule, now + self._spread_ms(schedule), now)
                return
            if await self._fails_always(schedule):
                return
            schedule = await self._with_text(schedule)
            judged = await self._judged(schedule, now)
            reach("schedule.before_claim")
            try:
                fired = await self._store.claim(schedule, judged.slots, judged.next_at, now)
            except AlreadyDone:
                judged = _passed_over(schedule)
                fired = await self._store.claim(schedule, judged.slots, judged.next_at, now)
            reach("schedule.after_claim")
            if fired is False:  # another housekeeper was faster
                return
            if isinstance(fired, Fired):
                await self._wake(schedule, fired)
            _report(schedule, judged)
            late = schedule.late_since
            still_late = late is not None and judged.next_at is not None and judged.next_at <= late
            schedule = replace(schedule, due_at=judged.next_at, late_since=late if still_late else None)

    async def _judged(self, schedule: Schedule, now: int) -> Judged:
        """What becomes of the slots that have come, also by what is in the way of the one that is to run."""
        judged = judge(schedule, now)
        if not judged.fires:
            return judged
        last = judged.slots[-1]
        if (reason := await self._hindrance(schedule, last.at_ms)) is None:
            return judged
        return replace(judged, slots=(*judged.slots[:-1], ScheduleSlot(last.at_ms, SlotState.SKIPPED, reason)))

    async def _with_text(self, schedule: Schedule) -> Schedule:
        """The schedule with what its agent is to be asked now: of the heartbeat, that is in a file."""
        if schedule.id != HEARTBEAT:
            return schedule
        file = self._pipe.settings.schedule.heartbeat.file
        return replace(schedule, text=await asyncio.to_thread(heartbeat_text, file))

    async def _hindrance(self, schedule: Schedule, slot: int) -> str | None:
        if not schedule.text:
            return NOTHING_OPEN
        if schedule.origin is not None and not await may_still_talk(self._pipe, schedule.origin):
            return "its owner may no longer talk to the bot"
        if schedule.overlap is Overlap.ALL:
            return None
        waiting = await self._store.waiting(str(schedule.key(slot)))
        if schedule.overlap is Overlap.SKIP and waiting:
            return "the run before it has not ended"
        return "too many runs are waiting" if waiting >= MOST_WAITING else None

    async def _wake(self, schedule: Schedule, fired: Fired) -> None:
        """Put the slot's message into its mailbox. If Redis is away, the journal's duty does it later."""
        try:
            await self._pipe.turns.put(fired.session_key, fired.seq, fired.payload)
        except Unavailable as error:
            log.get().warning("fired without a wake", schedule=schedule.id, error=str(error))

    async def _fails_always(self, schedule: Schedule) -> bool:
        """Pause a schedule whose turns became dead letters again and again, and tell its chat once."""
        most = self._pipe.settings.schedule.failures
        if not most:
            return False
        ended = await self._store.last_ended(schedule.id, most)
        if len(ended) < most or set(ended) != {State.DEAD}:
            return False
        text = f"The schedule “{schedule.name}” is paused: it failed {most} times in a row."
        said = Announcement(text, "schedule", f"{schedule.id} paused at {schedule.due_at}", schedule.origin)
        if schedule.origin is not None:
            try:  # before it is paused: a crash between the two tells the chat once all the same
                await announce(self._pipe, said, (Target(TargetKind.ORIGIN),))
            except Unavailable:
                raise
            except PipelineError as error:
                log.get().warning("the owner of a schedule was not told", schedule=schedule.id, error=str(error))
        await self._store.pause(schedule.id, f"failed {most} times in a row")
        log.get().error("schedule paused: it failed again and again", schedule=schedule.id, failures=most)
        return True

    def _spread_ms(self, schedule: Schedule) -> int:
        """How long a late schedule waits for its turn: always the same for one schedule, and different for each."""
        spread_ms = int(self._pipe.settings.schedule.catch_up_seconds * 1000)
        digest = blake2b(schedule.id.encode(), digest_size=8).digest()
        return int.from_bytes(digest) % spread_ms if spread_ms else 0


def _passed_over(schedule: Schedule) -> Judged:
    """What becomes of a slot that has its record already: it was resumed by a clock that is behind the one that ran it."""
    assert schedule.due_at is not None
    log.get().warning("a slot came twice, and ran once", schedule=schedule.id, slot=schedule.due_at)
    return Judged((), schedule.rule.next_after(schedule.due_at))


def _report(schedule: Schedule, judged: Judged) -> None:
    if not judged.slots:
        return
    for slot in judged.slots:
        metrics.SLOTS.labels(slot.state.value).inc()
    last = judged.slots[-1]
    log.get().info(
        "slots passed", schedule=schedule.id, slots=len(judged.slots), last=last.state.value, why=last.reason
    )
