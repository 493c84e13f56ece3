"""Schedules and their slots. Tables: schedules, schedule_fires; a slot that fires also writes to routes and inbox.

A slot fires by one transaction: it compares and sets the schedule's due time, records the slot, and journals its inbound. After
a crash all of it is there or nothing, and of several processes that saw the same slot one wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypedDict, Unpack

import orjson

from shared import log
from shared.clock import now_ms
from shared.codec import decode_source, encode_text
from shared.errors import AlreadyDone, Malformed
from shared.ids import fresh_id
from shared.mail import encode_mail
from shared.messages import Inbound
from shared.schedules.rule import read_rule
from shared.schedules.schedule import Missed, Overlap, Schedule, ScheduleState, slot_key
from shared.schedules.slots import ScheduleSlot, SlotState
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.endings import SCHEDULE_REMOVED, end_sessions, to_end
from shared.store.journal import first_session_id
from shared.targets import Target
from shared.value import value

KEPT_SLOTS = 20  # of each schedule, however old they are


class ScheduleRow(TypedDict):
    """A schedule that is added; `most`: how many its owner may have."""

    id: str
    name: str
    owner: str
    agent: str
    rule: str
    text: str
    targets: str
    origin: str | None
    missed: str
    overlap: str
    window_ms: int | None
    due_at: int
    now: int
    most: int


class FireInbound(TypedDict):
    """The inbound of a slot, as a row of the journal."""

    id: str
    event_id: str
    platform: str
    session_key: str
    payload: str
    now: int
    schedule_id: str
    claim: str


class SchedulesSql(Protocol):
    """The statements of schedules.sql, with the values that each needs."""

    def add_schedule(self, **row: Unpack[ScheduleRow]) -> Step: ...
    def schedule_by_id(self, *, id: str) -> Step: ...
    def schedules_listed(self, *, owner: str | None, limit: int) -> Step: ...
    def schedules_page(self, *, after_at: int, after_id: str, state: str | None, limit: int) -> Step: ...
    def schedules_due(self, *, now: int, limit: int) -> Step: ...
    def schedules_next(self) -> Step: ...
    def put_off_schedule(self, *, schedule_id: str, due_at: int, look_at: int, late_since: int) -> Step: ...
    def claim_schedule(self, *, schedule_id: str, due_at: int, next_at: int | None, claim: str) -> Step: ...
    def sign_schedule(self, *, schedule_id: str, claim: str) -> Step: ...
    def add_fires(self, *, fires: str, now: int, schedule_id: str, claim: str) -> Step: ...
    def fire_route(self, *, session_key: str, session_id: str, now: int, schedule_id: str, claim: str) -> Step: ...
    def fire_inbox(self, **inbound: Unpack[FireInbound]) -> Step: ...
    def waiting_fires(self, *, session_key: str) -> Step: ...
    def last_fires(self, *, schedule_id: str, limit: int) -> Step: ...
    def last_ended(self, *, schedule_id: str, limit: int) -> Step: ...
    def pause_schedule(self, *, id: str, reason: str | None) -> Step: ...
    def resume_schedule(self, *, id: str, due_at: int, now: int) -> Step: ...
    def old_fires(self, *, before: int, others: int, limit: int) -> Step: ...
    def prune_fires(self, *, rows: str) -> Step: ...
    def fires_of(self, *, id: str) -> Step: ...
    def schedules_ended(self, *, before: int, limit: int) -> Step: ...
    def remove_schedule(self, *, id: str) -> Step: ...
    def remove_fires(self, *, id: str) -> Step: ...


sql = declared(SchedulesSql)


@value
class Fired:
    """A slot whose inbound is in the journal, to be put into its mailbox."""

    session_key: str
    seq: int
    payload: bytes
    inbound: Inbound


class Schedules:
    """What is to run at its time. What a method has written when it returns survives a crash."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, schedule: Schedule, most: int) -> bool:
        """Keep a new schedule. False: its owner has as many as they may have."""
        assert schedule.due_at is not None
        row: ScheduleRow = {
            "id": schedule.id,
            "name": schedule.name,
            "owner": schedule.owner,
            "agent": schedule.agent,
            "rule": str(schedule.rule),
            "text": schedule.text,
            "targets": encode_text([str(target) for target in schedule.targets]),
            "origin": encode_text(schedule.origin) if schedule.origin is not None else None,
            "missed": schedule.missed.value,
            "overlap": schedule.overlap.value,
            "window_ms": schedule.window_ms,
            "due_at": schedule.due_at,
            "now": schedule.created_at,
            "most": most,
        }
        [added] = await self._database.write(sql.add_schedule(**row))
        return bool(added)

    async def find(self, id: str) -> Schedule | None:
        [rows] = await self._database.read(sql.schedule_by_id(id=id))
        return _schedule(rows[0]) if rows else None

    async def listed(self, limit: int, owner: str | None = None) -> list[Schedule]:
        """The schedules of an owner, or of everybody, oldest first. One that this process cannot read is logged and left out."""
        [rows] = await self._database.read(sql.schedules_listed(owner=owner, limit=limit))
        found, unreadable = _readable(rows)
        for id, reason in unreadable.items():
            log.get().error("schedule cannot be read", schedule=id, reason=reason)
        return found

    async def page(
        self, after: tuple[int, str], state: str | None, limit: int
    ) -> tuple[list[Schedule], dict[str, str], tuple[int, str] | None]:
        """Schedules, of one state where it is given, oldest first, after a time and an id; those that this process cannot read,
        each with the reason; and where the next page begins, if there may be one."""
        step = sql.schedules_page(after_at=after[0], after_id=after[1], state=state, limit=limit)
        [rows] = await self._database.read(step)
        more = (rows[-1]["created_at"], rows[-1]["id"]) if len(rows) == limit else None
        return *_readable(rows), more

    async def due(self, now: int, limit: int) -> tuple[list[Schedule], dict[str, str], int | None]:
        """The schedules to look at; those that this process cannot read, each with the reason; and when the next is due."""
        rows, [soonest] = await self._database.read(sql.schedules_due(now=now, limit=limit), sql.schedules_next())
        return *_readable(rows), soonest["look_at"]

    async def soonest(self) -> int | None:
        """When the next schedule is to be looked at; None where none is active."""
        [[row]] = await self._database.read(sql.schedules_next())
        at: int | None = row["look_at"]
        return at

    async def put_off(self, schedule: Schedule, look_at: int, late_since: int) -> None:
        """Let the late slots of a schedule wait until then. Nothing happens if somebody moved it on meanwhile."""
        assert schedule.due_at is not None
        await self._database.write(
            sql.put_off_schedule(
                schedule_id=schedule.id, due_at=schedule.due_at, look_at=look_at, late_since=late_since
            )
        )

    async def claim(
        self, schedule: Schedule, slots: Sequence[ScheduleSlot], next_at: int | None, now: int
    ) -> Fired | bool:
        """Move a schedule on past these slots, of which the last may fire. Gives what fired, True if nothing was to, and
        False if another process moved it on."""
        assert schedule.due_at is not None
        claim = fresh_id()
        step = sql.claim_schedule(schedule_id=schedule.id, due_at=schedule.due_at, next_at=next_at, claim=claim)
        return await self._fire(schedule, step, claim, slots, now)

    async def run_now(self, schedule: Schedule, now: int) -> Fired | None:
        """Fire a slot by hand. The schedule's own slots stay what they are. None: the schedule is gone."""
        claim = fresh_id()
        step = sql.sign_schedule(schedule_id=schedule.id, claim=claim)
        for slot in range(now, now + 100):  # several runs in one millisecond
            try:
                fired = await self._fire(schedule, step, claim, [ScheduleSlot(slot, SlotState.FIRED)], now, manual=True)
                return fired if isinstance(fired, Fired) else None
            except AlreadyDone:
                continue
        raise AlreadyDone(schedule.id)

    async def waiting(self, session_key: str) -> int:
        """How many fires of a key have not ended."""
        [rows] = await self._database.read(sql.waiting_fires(session_key=session_key))
        count: int = rows[0]["waiting"]
        return count

    async def last_fires(self, id: str, limit: int) -> list[Row]:
        """The newest slots of a schedule, and what became of their turns."""
        [rows] = await self._database.read(sql.last_fires(schedule_id=id, limit=limit))
        return rows

    async def last_fires_of(self, ids: Sequence[str], limit: int) -> list[list[Row]]:
        """The newest slots of each of some schedules."""
        return await self._database.read(*(sql.last_fires(schedule_id=id, limit=limit) for id in ids)) if ids else []

    async def last_ended(self, id: str, limit: int) -> list[str]:
        """The states of the newest turns of a schedule since it was resumed, the newest first."""
        [rows] = await self._database.read(sql.last_ended(schedule_id=id, limit=limit))
        return [row["state"] for row in rows]

    async def pause(self, id: str, reason: str | None) -> bool:
        """False: it is not active."""
        [rows] = await self._database.write(sql.pause_schedule(id=id, reason=reason))
        return bool(rows)

    async def resume(self, id: str, due_at: int, now: int) -> bool:
        """Turns that failed before `now` count no more. False: it is not paused."""
        [rows] = await self._database.write(sql.resume_schedule(id=id, due_at=due_at, now=now))
        return bool(rows)

    async def prune(self, before: int, limit: int) -> int:
        """Forget some slots from before that time, except the newest of each schedule, and some schedules whose last slot was
        before it. Gives how many rows at the most were of one kind. Sessions that no slot will run in any more end."""
        [fires] = await self._database.read(sql.old_fires(before=before, others=KEPT_SLOTS - 1, limit=limit))
        if fires:
            own = [row for row in fires if row["overlap"] == Overlap.ALL]
            await self._database.write(_to_end(own), sql.prune_fires(rows=encode_text(fires)))
        [ended] = await self._database.read(sql.schedules_ended(before=before, limit=limit))
        for row in ended:
            await self.remove(row["id"])
        await end_sessions(self._database, now_ms())
        return max(len(fires), len(ended))

    async def remove(self, id: str) -> bool:
        """False: it is not there. Its sessions end now or, where a slot still runs, at a later `prune`."""
        [fires] = await self._database.read(sql.fires_of(id=id))
        _, removed, _ = await self._database.write(_to_end(fires), sql.remove_schedule(id=id), sql.remove_fires(id=id))
        await end_sessions(self._database, now_ms())
        return bool(removed)

    async def _fire(
        self,
        schedule: Schedule,
        claiming: Step,
        claim: str,
        slots: Sequence[ScheduleSlot],
        now: int,
        *,
        manual: bool = False,
    ) -> Fired | bool:
        last = slots[-1] if slots and slots[-1].state is SlotState.FIRED else None
        inbound = schedule.fire(last.at_ms, now, manual=manual) if last is not None else None
        rows = [_fire_row(slot, inbound if slot is last else None, manual) for slot in slots]
        steps = [claiming, sql.add_fires(fires=encode_text(rows), now=now, schedule_id=schedule.id, claim=claim)]
        if inbound is None:
            claimed, _ = await self._database.write(*steps)
            return bool(claimed)
        key, payload = str(schedule.key(inbound.sent_at or 0)), encode_mail(inbound)
        steps.append(
            sql.fire_route(
                session_key=key, session_id=first_session_id(key), now=now, schedule_id=schedule.id, claim=claim
            )
        )
        steps.append(
            sql.fire_inbox(
                id=inbound.id,
                event_id=inbound.event_id,
                platform=inbound.source.platform,
                session_key=key,
                payload=payload.decode(),
                now=now,
                schedule_id=schedule.id,
                claim=claim,
            )
        )
        *_, journaled = await self._database.write(*steps)
        return Fired(key, journaled[0]["seq"], payload, inbound) if journaled else False


def _fire_row(slot: ScheduleSlot, inbound: Inbound | None, manual: bool) -> dict[str, object]:
    return {
        "slot": slot.at_ms,
        "manual": int(manual),
        "state": slot.state.value,
        "reason": slot.reason,
        "inbound_id": inbound.id if inbound is not None else None,
    }


def _readable(rows: Sequence[Row]) -> tuple[list[Schedule], dict[str, str]]:
    """The schedules, and the reasons why others cannot be read, by id."""
    found: list[Schedule] = []
    unreadable: dict[str, str] = {}
    for row in rows:
        try:
            found.append(_schedule(row))
        except (Malformed, ValueError) as error:
            unreadable[row["id"]] = str(error)
    return found, unreadable


def _schedule(row: Row) -> Schedule:
    """Malformed or ValueError where only another version can read it."""
    return Schedule(
        id=row["id"],
        name=row["name"],
        owner=row["owner"],
        agent=row["agent"],
        rule=read_rule(row["rule"]),
        text=row["text"],
        targets=tuple(map(Target.parse, orjson.loads(row["targets"]))),
        origin=decode_source(orjson.loads(row["origin"])) if row["origin"] is not None else None,
        missed=Missed(row["missed"]),
        overlap=Overlap(row["overlap"]),
        window_ms=row["window_ms"],
        state=ScheduleState(row["state"]),
        reason=row["reason"],
        due_at=row["due_at"],
        late_since=row["late_since"],
        created_at=row["created_at"],
    )


def _to_end(fires: Iterable[Row]) -> Step:
    """Note that the sessions are to end in which some slots ran."""
    keys = [slot_key(row["agent"], row["schedule_id"], Overlap(row["overlap"]), row["slot"] or 0) for row in fires]
    return to_end(keys, SCHEDULE_REMOVED)
