"""Schedules: add one, remove it, pause it, let it go on, run it now. Each is in the database when the call returns."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import TypeVar

from shared import log
from shared.clock import now_ms
from shared.codec import storable
from shared.context.labels import inert
from shared.errors import AlreadyDone, CannotDo, NotFound, Unavailable
from shared.ids import fresh_id
from shared.messages import Source
from shared.permission import beyond_reach
from shared.pipeline import Pipeline
from shared.reading.schedules import ShownSchedule, shown
from shared.routing import agent_for
from shared.schedules.rule import Rule, next_times, parse_rule
from shared.schedules.schedule import Missed, Overlap, Schedule
from shared.session_key import MAIN
from shared.store import Store
from shared.targets import parse_targets
from shared.value import value

Choice = TypeVar("Choice", Missed, Overlap)
TEXT_LIMIT = 10_000  # characters
NAME_LIMIT = 80
GAPS = 20  # times of a rule that are looked at for two that are too close


@value
class WantedSchedule:
    """A schedule as somebody wishes it."""

    when: str  # by the clocks of TIMEZONE, unless it names a zone
    text: str
    to: tuple[str, ...] = ("origin",)
    name: str = ""
    missed: str = Missed.LAST.value
    overlap: str = Overlap.SKIP.value
    window_seconds: float | None = None


@value
class Maker:
    """Who makes a schedule. Without a source it is the operator."""

    owner: str = ""
    source: Source | None = None


OPERATOR = Maker()
NOBODY = "nothing says who speaks here, so there can be no schedules"


@value
class RunByHand:
    """A run that was asked for by hand."""

    schedule: str
    id: str  # of its message
    session_key: str


async def add_schedule(
    pipe: Pipeline, wanted: WantedSchedule, by: Maker = OPERATOR, key: str | None = None
) -> ShownSchedule:
    """Keep a new schedule, and say in words what was understood. CannotDo for what is not allowed, Malformed for what
    cannot be read. The same `key` again adds nothing and gives the schedule that it made."""
    settings, bounds, now = pipe.settings, pipe.settings.schedule, now_ms()
    rule = parse_rule(wanted.when, settings.timezone, now)
    targets = parse_targets(wanted.to)
    for target in targets:
        if target.platform and target.platform not in settings.connected:
            raise CannotDo(f"{target.platform} is not connected, so no answer can go to {target}")
    text = storable(wanted.text).strip()
    if not 0 < len(text) <= TEXT_LIMIT:
        raise CannotDo(f"the text of a schedule has 1 to {TEXT_LIMIT:,} characters")
    due_at = rule.next_after(now)
    if due_at is None:
        raise CannotDo(f"that time is over: {rule.words}")
    if by.source is not None:
        if not by.owner:
            raise CannotDo(NOBODY)
        if far := beyond_reach(settings, by.source, targets):
            raise CannotDo(f"only an admin may send to {far[0]}; origin is this chat")
        _check_pace(rule, now, bounds.shortest_seconds)
    most = bounds.per_owner if by.source is not None else bounds.of_operator
    schedule = Schedule(
        f"sch_{fresh_id() if key is None else blake2b(f'{by.owner} {key}'.encode(), digest_size=16).hexdigest()}",
        inert(wanted.name or text, NAME_LIMIT),
        by.owner,
        agent_for(by.source, settings) if by.source is not None else MAIN,
        rule,
        text,
        targets,
        by.source,
        _one_of(Missed, wanted.missed),
        _one_of(Overlap, wanted.overlap),
        int(wanted.window_seconds * 1000) if wanted.window_seconds is not None else None,
        due_at=due_at,
        created_at=now,
    )
    if key is not None and (known := await pipe.store.schedules.find(schedule.id)) is not None:
        return shown(known, now)
    try:
        added = await pipe.store.schedules.add(schedule, most)
    except AlreadyDone:  # the same call, made again at the same moment
        return shown(await _find(pipe.store, schedule.id, by), now)
    if not added:
        raise CannotDo(f"there are {most} schedules already: remove one first")
    log.get().info("schedule added", schedule=schedule.id)
    return shown(schedule, now)


async def remove_schedule(store: Store, id: str, by: Maker = OPERATOR) -> None:
    """Forget a schedule and its slots. A run that has begun goes on. The operator may remove what cannot be read, too."""
    if by.source is not None:
        await _find(store, id, by)
    if not await store.schedules.remove(id):
        raise NotFound(f"there is no schedule {id:.60}")


async def pause_schedule(store: Store, id: str, by: Maker = OPERATOR) -> ShownSchedule:
    """Let no more slots of a schedule run until it is resumed."""
    await _find(store, id, by)
    if not await store.schedules.pause(id, "by hand"):
        raise CannotDo("only an active schedule can be paused")
    return shown(await _find(store, id, by), now_ms())


async def resume_schedule(store: Store, id: str, by: Maker = OPERATOR) -> ShownSchedule:
    """Let a paused schedule go on with its next slot. Slots that came meanwhile do not run."""
    schedule, now = await _find(store, id, by), now_ms()
    if (due_at := schedule.rule.next_after(now)) is None:
        raise CannotDo("no time of this schedule is left")
    if not await store.schedules.resume(id, due_at, now):
        raise CannotDo("only a paused schedule can be resumed")
    return shown(await _find(store, id, by), now)


async def run_schedule(pipe: Pipeline, id: str, by: Maker = OPERATOR) -> RunByHand:
    """Run a schedule now, beside its own slots."""
    schedule = await _find(pipe.store, id, by)
    fired = await pipe.store.schedules.run_now(schedule, now_ms())
    if fired is None:
        raise NotFound(f"there is no schedule {id}")
    try:
        await pipe.turns.put(fired.session_key, fired.seq, fired.payload)
    except Unavailable as error:  # the journal has it: the housekeeper wakes the key when Redis is back
        log.get().warning("fired without a wake", schedule=id, error=str(error))
    return RunByHand(id, fired.inbound.id, fired.session_key)


async def _find(store: Store, id: str, by: Maker) -> Schedule:
    """The schedule, if it is there for who asks: the operator sees all, others their own."""
    schedule = await store.schedules.find(id)
    if schedule is None or (by.source is not None and (not by.owner or schedule.owner != by.owner)):
        raise NotFound(f"there is no schedule {id:.60}")
    return schedule


def _check_pace(rule: Rule, now: int, shortest_seconds: float) -> None:
    times = next_times(rule, now, GAPS)
    if any(second - first < shortest_seconds * 1000 for first, second in pairwise(times)):
        raise CannotDo(f"a schedule may run every {shortest_seconds:g} seconds at the most")


def _one_of(kind: type[Choice], value: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        raise CannotDo(f"{value!r:.40} is none of {', '.join(kind)}") from None
