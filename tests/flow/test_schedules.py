"""Schedules: every slot becomes one message or a recorded reason, whoever dies meanwhile, and its answer reaches its targets."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from shared import failpoints
from shared.clock import now_ms
from shared.embedded import child
from shared.errors import AlreadyDone, CannotDo, NotFound
from shared.failpoints import arm, fired
from shared.messages import Source
from shared.operating.dead_letters import replay_letter
from shared.operating.schedules import (
    Maker,
    WantedSchedule,
    add_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
)
from shared.output_file import save_output
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.telegram import TelegramSettings
from shared.reading.schedules import listed_schedules, one_schedule
from shared.schedules.rule import Cron, Every, Rule
from shared.schedules.schedule import Missed, Overlap, Schedule
from shared.schedules.slots import ScheduleSlot, SlotState
from shared.settings import ScheduleSettings, Settings
from shared.store.schedules import KEPT_SLOTS, Schedules
from shared.targets import parse_targets
from tests.store.books import ask, write
from tests.support.outage import start_process
from tests.support.pipe import Rig
from tests.support.telegram import TOKEN, FakeTelegram, open_telegram
from tests.support.working import working
from workers.agents.functions import FunctionAgent
from workers.upkeep import old_slots
from workers.upkeep import schedules as duty
from workers.upkeep.old_slots import OldSlots
from workers.upkeep.schedules import DueSchedules

ANN = 11
DM = f"agent:main:telegram:dm:{ANN}"
ANN_SPEAKS = Source("telegram", str(ANN), user=str(ANN))
BY_ANN = Maker(f"telegram:u={ANN}", ANN_SPEAKS)
NOON = 3_786_955_200_000  # in the year 2090: no housekeeper that runs by the real clock comes in between
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
WAIT_SECONDS = 240
MakeSettings = Callable[..., Settings]


@dataclass
class Clock:
    ms: int = NOON

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with open_telegram() as opened:
        yield opened


def telegram(fake: FakeTelegram, **changes: Any) -> TelegramSettings:
    values = {"token": SecretStr(TOKEN), "api_url": fake.url, "allowed_users": (str(ANN),), "enabled": True, **changes}
    return TelegramSettings(**values)


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeTelegram) -> Settings:
    return make_settings(telegram=telegram(fake), sweep_seconds=0.2)


def a_schedule(id: str = "sch_1", rule: Rule | None = None, **changes: Any) -> Schedule:
    """Every minute from noon on, into a file."""
    rule = rule or Every(MINUTE, NOON)
    schedule = Schedule(id, "news", "", "main", rule, "what is new?", parse_targets(["local"]), created_at=NOON)
    return replace(schedule, due_at=rule.next_after(NOON), **changes)


async def keep(pipe: Pipeline, *schedules: Schedule) -> None:
    for schedule in schedules:
        assert await pipe.store.schedules.add(schedule, 1000)


async def slots(pipe: Pipeline, id: str = "sch_1") -> list[tuple[int, str, str | None]]:
    """Slot in minutes after noon, state and reason, oldest first."""
    rows = await pipe.store.schedules.last_fires(id, 10_000)
    return [((row["slot"] - NOON) // MINUTE, row["state"], row["reason"]) for row in reversed(rows)]


async def journal(pipe: Pipeline) -> list[str]:
    return [
        row["event_id"] for row in await ask(pipe.store, "SELECT event_id FROM inbox ORDER BY received_at, event_id")
    ]


async def until(true: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await true():
            await asyncio.sleep(0.05)


async def look(pipe: Pipeline, clock: Clock, to_ms: int) -> None:
    clock.ms = to_ms
    await DueSchedules(pipe, clock).look()


# -- a slot fires once


async def test_ag48_three_housekeepers_of_which_one_is_killed_fire_every_slot_once(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 slots, ten in a second. The killed one dies between its claim and the wake, where it could do the most harm."""
    async with open_pipeline(settings) as pipe:
        start = now_ms()
        every = Every(100, start)
        # However slow the machine is, no slot is too late for it and none waits behind too many others.
        schedule = a_schedule(rule=every, overlap=Overlap.ALL, missed=Missed.ALL, window_ms=DAY)
        await keep(pipe, replace(schedule, due_at=start + 100))
        points = tmp_path / "points"
        points.mkdir()
        arm(points, "schedule.after_claim", failpoints.KILL, percent=20)
        monkeypatch.setenv(failpoints.VARIABLE, str(points))
        keepers = [start_process(settings, "housekeep") for _ in range(3)]
        try:
            async with working(pipe):

                async def sixty() -> bool:
                    return len(await slots(pipe)) >= 60 and bool(fired(points))

                await until(sixty)
                await pause_schedule(pipe.store, "sch_1")

                async def all_delivered() -> bool:
                    done = await ask(pipe.store, "SELECT COUNT(*) AS n FROM outbox WHERE state = 'sent'")
                    return bool(done[0]["n"] == len(await slots(pipe)))

                await until(all_delivered)
        finally:
            for keeper in keepers:
                child.stop(keeper, signal.SIGTERM, 20)
        [(point, action, pid)] = fired(points)
        assert (point, action) == ("schedule.after_claim", "kill") and pid in [keeper.pid for keeper in keepers]
        rows = await pipe.store.schedules.last_fires("sch_1", 10_000)
        assert [row["slot"] for row in reversed(rows)] == [start + 100 * n for n in range(1, len(rows) + 1)]
        assert {(row["state"], row["turn"]) for row in rows} == {("fired", "answered")}
        assert len({row["inbound_id"] for row in rows}) == len(rows) >= 60
        files = list((tmp_path / "cron/output/sch_1").glob("*.md"))
        assert len(files) == len(rows)


async def test_of_housekeepers_that_look_at_the_same_moment_one_fires(rig: Rig) -> None:
    clock = Clock()
    await keep(rig.pipe, *(a_schedule(f"sch_{n}", overlap=Overlap.QUEUE) for n in range(5)))
    for minute in range(1, 13):
        clock.ms = NOON + minute * MINUTE
        await asyncio.gather(*(DueSchedules(rig.pipe, clock).look() for _ in range(3)))
    for n in range(5):
        assert await slots(rig.pipe, f"sch_{n}") == [(minute, "fired", None) for minute in range(1, 13)]
    assert len(await journal(rig.pipe)) == 60


@pytest.mark.parametrize("point", ["schedule.before_claim", "schedule.after_claim"])
async def test_ag50_a_housekeeper_that_dies_before_or_after_the_claim_loses_no_slot_and_doubles_none(
    rig: Rig, point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, foreseen: Callable[[str], None]
) -> None:
    foreseen("housekeeper")
    clock = Clock(NOON + MINUTE)
    await keep(rig.pipe, a_schedule())
    arm(tmp_path, point, failpoints.RAISE)
    monkeypatch.setattr(duty, "reach", failpoints.looking(str(tmp_path)))
    await DueSchedules(rig.pipe, clock).look()
    assert fired(tmp_path) == [(point, "raise", os.getpid())]
    before = await journal(rig.pipe)
    assert len(before) == (1 if point == "schedule.after_claim" else 0)
    await DueSchedules(rig.pipe, clock).look()
    async with working(rig.pipe):  # its housekeeper finds the message that no mailbox knows

        async def answered() -> bool:
            return await rig.transcript(str(a_schedule().key(0))) == ["what is new?", "echo: what is new?"]

        await until(answered)
    assert await slots(rig.pipe) == [(1, "fired", None)]


async def test_a_slot_whose_store_failed_in_the_middle_is_whole_or_not_there(rig: Rig) -> None:
    await keep(rig.pipe, a_schedule())
    await write(
        rig.pipe.store,
        "INSERT INTO schedule_fires VALUES ('sch_1', :slot, 0, 'fired', NULL, NULL, 1)",
        slot=NOON + MINUTE,
    )
    slot, store = ScheduleSlot(NOON + MINUTE, SlotState.FIRED), rig.pipe.store.schedules
    with pytest.raises(AlreadyDone):
        await store.claim(a_schedule(), [slot], NOON + 2 * MINUTE, NOON + MINUTE)
    assert await journal(rig.pipe) == []
    schedule = await store.find("sch_1")
    assert schedule is not None and schedule.due_at == NOON + MINUTE


async def test_an_at_schedule_fires_once_and_has_ended(rig: Rig) -> None:
    shown = await add_schedule(rig.pipe, WantedSchedule("10ms", "wake up", ("local",)))
    clock = Clock(now_ms() + 50)
    await DueSchedules(rig.pipe, clock).look()
    await DueSchedules(rig.pipe, clock).look()
    found = await one_schedule(rig.pipe.store, shown.id, 10)
    assert (found.schedule.state, found.schedule.next, [slot.state for slot in found.slots]) == ("ended", (), ["fired"])


async def test_the_housekeeper_wakes_when_the_next_schedule_is_due(rig: Rig) -> None:
    clock = Clock()
    assert await DueSchedules(rig.pipe, clock).look() == rig.pipe.settings.schedule.look_seconds
    await keep(rig.pipe, a_schedule())
    clock.ms = NOON + MINUTE - 200
    assert await DueSchedules(rig.pipe, clock).look() == pytest.approx(0.2)


# -- missed and overlapping slots


async def test_ag49_after_twelve_hours_twenty_daily_jobs_run_spread_out_and_every_slot_has_a_state(rig: Rig) -> None:
    daily = [Cron(f"{n} {n % 12} * * *", "UTC") for n in range(20)]  # all of them in the twelve hours after midnight
    midnight, clock = NOON + 12 * HOUR, Clock()
    made = [a_schedule(f"sch_{n}", rule, window_ms=DAY) for n, rule in enumerate(daily)]
    await keep(rig.pipe, *(replace(one, due_at=one.rule.next_after(midnight - 1)) for one in made))
    back = midnight + 12 * HOUR
    await look(rig.pipe, clock, back)
    assert await journal(rig.pipe) == []  # none at once
    spread = {row["look_at"] for row in await ask(rig.pipe.store, "SELECT look_at FROM schedules")}
    assert len(spread) >= 15 and back <= min(spread) and max(spread) < back + MINUTE
    counts = []
    for second in range(0, 61, 5):
        await look(rig.pipe, clock, back + second * SECOND)
        counts.append(len(await journal(rig.pipe)))
    assert counts[-1] == 20 and len(set(counts)) >= 5
    for n in range(20):
        assert [(state, reason) for _, state, reason in await slots(rig.pipe, f"sch_{n}")] == [("fired", "late")]


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        (Missed.LAST, [("missed", "too late")] * 3 + [("missed", "a later one runs")] + [("fired", "late")]),
        (Missed.SKIP, [("missed", "too late")] * 3 + [("missed", "late")] * 2),
        (Missed.ALL, [("missed", "too late")] * 3 + [("fired", "late")] * 2),
    ],
)
async def test_late_slots_run_by_policy(rig: Rig, missed: Missed, expected: list[tuple[str, str]]) -> None:
    clock = Clock()
    await keep(rig.pipe, a_schedule(missed=missed, overlap=Overlap.QUEUE, window_ms=100 * SECOND))
    back = NOON + 5 * MINUTE + 35 * SECOND
    await look(rig.pipe, clock, back)
    await look(rig.pipe, clock, back)
    schedule = await rig.pipe.store.schedules.find("sch_1")
    assert schedule is not None and schedule.late_since == back
    assert await slots(rig.pipe) == []
    for _ in range(3):
        await write(rig.pipe.store, "UPDATE schedules SET look_at = :now", now=back)
        await look(rig.pipe, clock, back + 5 * SECOND)
    assert [(state, reason) for _, state, reason in await slots(rig.pipe)] == expected
    schedule = await rig.pipe.store.schedules.find("sch_1")
    assert schedule is not None and (schedule.late_since, schedule.due_at) == (None, NOON + 6 * MINUTE)


@pytest.mark.parametrize(
    ("overlap", "second"),
    [
        (Overlap.SKIP, ("skipped", "the run before it has not ended")),
        (Overlap.QUEUE, ("fired", None)),
        (Overlap.ALL, ("fired", None)),
    ],
)
async def test_ag53_a_slot_whose_run_before_goes_on_is_skipped_or_runs_by_policy(
    rig: Rig, overlap: Overlap, second: tuple[str, str | None]
) -> None:
    clock = Clock()
    await keep(rig.pipe, a_schedule(overlap=overlap))
    await look(rig.pipe, clock, NOON + MINUTE)
    await look(rig.pipe, clock, NOON + 2 * MINUTE)
    assert await slots(rig.pipe) == [(1, "fired", None), (2, *second)]
    keys = {row["session_key"] for row in await ask(rig.pipe.store, "SELECT session_key FROM inbox")}
    assert len(keys) == (2 if overlap is Overlap.ALL else 1)


async def test_N81_a_slot_of_a_busy_schedule_waits_in_its_key_and_is_never_injected(rig: Rig) -> None:
    clock, schedule = Clock(), a_schedule(overlap=Overlap.QUEUE)
    await keep(rig.pipe, schedule)
    await look(rig.pipe, clock, NOON + MINUTE)
    lease = await rig.lease(str(schedule.key(0)))
    await look(rig.pipe, clock, NOON + 2 * MINUTE)
    states = {row["state"] for row in await ask(rig.pipe.store, "SELECT state FROM inbox")}
    assert states == {"pending"}
    await rig.turns(lease)
    assert await rig.transcript(str(schedule.key(0))) == ["what is new?", "echo: what is new?"] * 2


async def test_a_queue_of_runs_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duty, "MOST_WAITING", 2)
    clock = Clock()
    await keep(rig.pipe, a_schedule(overlap=Overlap.QUEUE))
    for minute in (1, 2, 3):
        await look(rig.pipe, clock, NOON + minute * MINUTE)
    assert (await slots(rig.pipe))[-1] == (3, "skipped", "too many runs are waiting")


async def test_a_schedule_that_this_version_cannot_read_is_paused_and_holds_up_no_other(rig: Rig) -> None:
    clock = Clock()
    await keep(rig.pipe, a_schedule("sch_1"), a_schedule("sch_2"))
    await write(rig.pipe.store, "UPDATE schedules SET rule = 'by the moon' WHERE id = 'sch_1'")
    await look(rig.pipe, clock, NOON + MINUTE)
    assert await slots(rig.pipe, "sch_2") == [(1, "fired", None)]
    states = await ask(rig.pipe.store, "SELECT id, state FROM schedules ORDER BY id")
    assert [row["state"] for row in states] == ["paused", "active"]
    assert [shown.id for shown in await listed_schedules(rig.pipe.store, 10)] == ["sch_2"]
    await remove_schedule(rig.pipe.store, "sch_1")
    assert [row["id"] for row in await ask(rig.pipe.store, "SELECT id FROM schedules")] == ["sch_2"]


# -- what people do with them


async def test_N95_a_run_by_hand_is_a_slot_of_its_own_and_moves_nothing(rig: Rig) -> None:
    await keep(rig.pipe, a_schedule())
    first, second = await run_schedule(rig.pipe, "sch_1"), await run_schedule(rig.pipe, "sch_1")
    assert first.id != second.id
    await look(rig.pipe, Clock(), NOON + MINUTE)
    found = await one_schedule(rig.pipe.store, "sch_1", 10)
    assert [(slot.by_hand, slot.state) for slot in found.slots] == [(False, "skipped")] + [(True, "fired")] * 2
    await rig.run_turns(first.session_key)
    assert [slot.turn for slot in (await one_schedule(rig.pipe.store, "sch_1", 10)).slots] == [None] + ["answered"] * 2


async def test_a_paused_schedule_runs_nothing_and_goes_on_with_a_slot_to_come(rig: Rig) -> None:
    shown = await add_schedule(rig.pipe, WantedSchedule("every 1h", "hello", ("local",)))
    await pause_schedule(rig.pipe.store, shown.id)
    with pytest.raises(CannotDo):
        await pause_schedule(rig.pipe.store, shown.id)
    clock = Clock(now_ms() + 5 * HOUR)
    await DueSchedules(rig.pipe, clock).look()
    assert await slots(rig.pipe, shown.id) == []
    resumed = await resume_schedule(rig.pipe.store, shown.id)
    assert resumed.state == "active" and resumed.next[0].timestamp() * 1000 > now_ms()


async def test_a_schedule_that_was_resumed_by_a_clock_behind_the_housekeepers_goes_on_with_its_next_slot(
    rig: Rig,
) -> None:
    clock, store = Clock(), rig.pipe.store.schedules
    await keep(rig.pipe, a_schedule(overlap=Overlap.QUEUE))
    await look(rig.pipe, clock, NOON + MINUTE)
    assert await store.pause("sch_1", None) and await store.resume("sch_1", NOON + MINUTE, NOON + MINUTE - SECOND)
    await look(rig.pipe, clock, NOON + MINUTE + SECOND)
    await look(rig.pipe, clock, NOON + 2 * MINUTE)
    assert await slots(rig.pipe) == [(1, "fired", None), (2, "fired", None)]
    assert len(await journal(rig.pipe)) == 2


async def test_N96_removing_a_schedule_removes_no_other(rig: Rig) -> None:
    await keep(rig.pipe, a_schedule("sch_1"))
    other = Schedules(rig.pipe.store.database)
    assert await other.add(a_schedule("sch_2"), 1000)
    await remove_schedule(rig.pipe.store, "sch_1")
    assert [one.id for one in await listed_schedules(rig.pipe.store, 10)] == ["sch_2"]
    with pytest.raises(NotFound):
        await remove_schedule(rig.pipe.store, "sch_1")


async def test_what_was_understood_is_said_back_with_the_next_three_times(rig: Rig) -> None:
    shown = await add_schedule(rig.pipe, WantedSchedule("every 1d at 09:00 in Europe/Berlin", "hello", ("local",)))
    assert "0 9 * * *" in shown.when and "Europe/Berlin" in shown.when and len(shown.next) == 3
    assert all(at.hour in (7, 8) and at.minute == 0 for at in shown.next)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (WantedSchedule("every 30s", "x"), "every 60 seconds"),
        (WantedSchedule("every 1h", "x" * 10_001), "10,000 characters"),
        (WantedSchedule("every 1h", " "), "10,000 characters"),
        (WantedSchedule("2020-01-01", "x"), "over"),
        (WantedSchedule("every 1h", "x", ("telegram",)), "only an admin"),
        (WantedSchedule("every 1h", "x", ("telegram:12",)), "only an admin"),
        (WantedSchedule("every 1h", "x", missed="some"), "none of"),
    ],
)
async def test_a_person_is_held_to_bounds(rig: Rig, wanted: WantedSchedule, reason: str) -> None:
    with pytest.raises(CannotDo, match=reason):
        await add_schedule(rig.pipe, wanted, BY_ANN)
    assert await listed_schedules(rig.pipe.store, 10) == ()


async def test_a_schedule_for_a_platform_that_is_not_connected_is_refused_at_once(rig: Rig) -> None:
    with pytest.raises(CannotDo, match="slack is not connected"):
        await add_schedule(rig.pipe, WantedSchedule("@daily", "news", to=("local", "slack:C1")))
    assert not await listed_schedules(rig.pipe.store, 10)


async def test_a_person_has_so_many_schedules_and_sees_only_their_own(
    make_settings: MakeSettings, fake: FakeTelegram
) -> None:
    settings = make_settings(telegram=telegram(fake), schedule=ScheduleSettings(per_owner=2))
    async with open_pipeline(settings) as pipe:
        made = [await add_schedule(pipe, WantedSchedule("every 1h", "x"), BY_ANN) for _ in range(2)]
        with pytest.raises(CannotDo, match="2 schedules"):
            await add_schedule(pipe, WantedSchedule("every 1h", "x"), BY_ANN)
        bob = Maker("telegram:u=12", replace(ANN_SPEAKS, user="12", chat="12"))
        await add_schedule(pipe, WantedSchedule("every 1h", "x"), bob)
        with pytest.raises(NotFound):
            await remove_schedule(pipe.store, made[0].id, bob)
        assert {one.id for one in await listed_schedules(pipe.store, 10, BY_ANN.owner)} == {one.id for one in made}


async def test_a_schedule_of_somebody_who_may_no_longer_talk_does_not_run(
    make_settings: MakeSettings, fake: FakeTelegram
) -> None:
    async with open_pipeline(make_settings(telegram=telegram(fake, allowed_users=("12",)))) as pipe:
        await keep(pipe, a_schedule(owner=BY_ANN.owner, origin=ANN_SPEAKS, targets=parse_targets(["origin"])))
        await look(pipe, Clock(), NOON + MINUTE)
        assert await slots(pipe) == [(1, "skipped", "its owner may no longer talk to the bot")]


async def test_a_schedule_that_was_paused_for_failures_runs_again_when_it_is_resumed(
    make_settings: MakeSettings,
) -> None:
    async with open_pipeline(make_settings(schedule=ScheduleSettings(failures=2, catch_up_seconds=0))) as pipe:
        clock = Clock()
        await keep(pipe, a_schedule(overlap=Overlap.QUEUE))
        for minute in (1, 2, 3):
            await look(pipe, clock, NOON + minute * MINUTE)
            await write(pipe.store, "UPDATE inbox SET state = 'dead'")
        paused = await pipe.store.schedules.find("sch_1")
        assert paused is not None and paused.reason == "failed 2 times in a row"
        assert await pipe.store.schedules.resume("sch_1", NOON + 4 * MINUTE, NOON + 3 * MINUTE)
        for minute in (4, 5):
            await look(pipe, clock, NOON + minute * MINUTE)
        assert [state for _, state, _ in await slots(pipe)] == ["fired"] * 4


async def test_old_slots_ended_schedules_and_old_files_are_removed_some_at_a_time(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_slots, "AT_ONCE", 3)
    async with open_pipeline(make_settings(schedule=ScheduleSettings(kept_days=30))) as pipe:
        store, now = pipe.store.schedules, now_ms()
        await keep(pipe, a_schedule(), a_schedule("sch_2"), a_schedule("sch_3"))
        for n in range(KEPT_SLOTS + 4):
            schedule = await store.find("sch_1")
            assert schedule is not None
            await store.run_now(schedule, now + n)
        gone, young = await store.find("sch_2"), await store.find("sch_3")
        assert gone is not None and young is not None
        await store.claim(gone, (), None, now)
        await store.claim(young, (), None, now)
        await write(pipe.store, "UPDATE schedule_fires SET created_at = :at", at=now - 31 * DAY)
        await write(pipe.store, "UPDATE schedules SET look_at = :at WHERE id = 'sch_2'", at=now - 31 * DAY)
        written = [await save_output(tmp_path, "sch_2", now + n, str(n), {}, "text") for n in range(4)]
        for path in written[1:]:
            os.utime(path, (now / 1000 - 31 * 86_400,) * 2)
        looks = [await OldSlots(pipe).look() for _ in range(3)]
        assert looks == [1.0, old_slots.EVERY_SECONDS, old_slots.EVERY_SECONDS]
        kept = await store.last_fires("sch_1", 100)
        assert [row["slot"] for row in kept] == [now + n for n in reversed(range(4, KEPT_SLOTS + 4))]
        assert await store.find("sch_2") is None and await store.find("sch_3") is not None
        assert [path.exists() for path in written] == [True, False, False, False]


# -- the turn and its answer


@asynccontextmanager
async def running(pipe: Pipeline, schedule: Schedule, agent: Callable[[str], str]) -> AsyncIterator[None]:
    """The schedule runs by hand, once, in a working deployment."""
    await keep(pipe, schedule)
    async with working(pipe, FunctionAgent(agent)):
        await run_schedule(pipe, schedule.id)
        yield


async def test_the_answer_reaches_its_targets_is_part_of_their_chats_and_is_kept_as_a_file(
    pipe: Pipeline, fake: FakeTelegram, tmp_path: Path
) -> None:
    schedule = a_schedule(targets=parse_targets([f"telegram:{ANN}", "local"]))
    async with running(pipe, schedule, lambda text: f"nothing, said of: {text}"):
        await fake.until(lambda fake: fake.texts(ANN) == ["nothing, said of: what is new?"])
    rig = Rig(pipe)
    assert await rig.transcript(DM) == ["nothing, said of: what is new?"]
    [file] = (tmp_path / "cron/output/sch_1").glob("*.md")
    assert "nothing, said of: what is new?" in file.read_text()


async def test_T17_a_local_delivery_is_a_file_with_a_header(pipe: Pipeline, tmp_path: Path) -> None:
    async with running(pipe, a_schedule(), lambda text: "the answer"):
        output = tmp_path / "cron/output/sch_1"

        async def there() -> bool:
            return len(list(output.glob("*.md"))) == 1

        await until(there)
    [file] = output.glob("*.md")
    assert file.name.startswith("20") and file.read_text().startswith("---\nschedule: news\nid: sch_1\nslot: 20")
    assert file.read_text().endswith("---\n\nthe answer\n")


async def test_T11_a_long_answer_arrives_whole_in_pieces_and_a_copy_is_saved(
    pipe: Pipeline, fake: FakeTelegram, tmp_path: Path
) -> None:
    text = "word " * 1000
    async with running(pipe, a_schedule(targets=parse_targets([f"telegram:{ANN}"])), lambda _: text):
        await fake.until(lambda fake: len(fake.texts(ANN)) == 2)
    assert "".join(fake.texts(ANN)).count("word") == 1000
    [file] = (tmp_path / "cron/output/sch_1").glob("*.md")
    assert file.read_text().count("word") == 1000


async def test_T12_an_answer_that_cannot_be_saved_is_sent_all_the_same(
    pipe: Pipeline, fake: FakeTelegram, tmp_path: Path
) -> None:
    (tmp_path / "cron").write_text("a file where the directory should be")
    async with running(pipe, a_schedule(targets=parse_targets([f"telegram:{ANN}"])), lambda _: "hello"):
        await fake.until(lambda fake: fake.texts(ANN) == ["hello"])


@pytest.mark.parametrize("answer", ["[SILENT]", " [silent]\n", "(silent)", "."])
async def test_an_answer_that_says_nothing_is_kept_and_sent_to_nobody(
    pipe: Pipeline, fake: FakeTelegram, tmp_path: Path, answer: str
) -> None:
    async with running(pipe, a_schedule(targets=parse_targets([f"telegram:{ANN}"])), lambda _: answer):

        async def sent() -> bool:
            return [row["state"] for row in await ask(pipe.store, "SELECT state FROM outbox")] == ["sent"]

        await until(sent)
    assert fake.texts(ANN) == [] and len(list((tmp_path / "cron/output/sch_1").glob("*.md"))) == 1


async def test_a_target_that_cannot_be_told_keeps_nothing_from_the_others_and_none_makes_a_dead_letter(
    pipe: Pipeline, fake: FakeTelegram
) -> None:
    await keep(pipe, a_schedule("sch_2", targets=parse_targets(["slack"])))
    async with running(pipe, a_schedule(targets=parse_targets(["slack:C1", f"telegram:{ANN}"])), lambda _: "hello"):
        await fake.until(lambda fake: fake.texts(ANN) == ["hello"])
        await run_schedule(pipe, "sch_2")

        async def buried() -> bool:
            return [row["reason"] for row in await ask(pipe.store, "SELECT reason FROM dead")] == ["refused"]

        await until(buried)


async def test_a_scheduled_turn_has_the_rights_of_its_owner_and_a_command_in_it_is_only_text(pipe: Pipeline) -> None:
    schedule = a_schedule(owner=BY_ANN.owner, origin=ANN_SPEAKS, text="/new")
    async with running(pipe, schedule, lambda text: f"said {text}"):

        async def answered() -> bool:
            return await Rig(pipe).transcript(str(schedule.key(0))) == ["/new", "said /new"]

        await until(answered)
    [row] = await ask(pipe.store, "SELECT owner FROM sessions WHERE session_key LIKE '%schedule%'")
    assert row["owner"] == BY_ANN.owner


async def test_a_schedule_that_fails_again_and_again_is_paused_and_its_chat_told_once(
    make_settings: MakeSettings, fake: FakeTelegram
) -> None:
    settings = make_settings(
        telegram=telegram(fake), schedule=ScheduleSettings(failures=2), max_attempts=1, sweep_seconds=0.2
    )

    def fails(_: str) -> str:
        raise RuntimeError("no")

    async with open_pipeline(settings) as pipe:
        schedule = a_schedule(owner=BY_ANN.owner, origin=ANN_SPEAKS, targets=parse_targets(["origin"]))
        async with running(pipe, schedule, fails):
            await run_schedule(pipe, "sch_1")
            await fake.until(lambda fake: len([text for text in fake.texts(ANN) if "run failed" in text]) == 2)
            await asyncio.gather(*(DueSchedules(pipe, Clock(NOON + MINUTE)).look() for _ in range(3)))
            await fake.until(lambda fake: any("paused" in text for text in fake.texts(ANN)))
            await DueSchedules(pipe, Clock(NOON + MINUTE)).look()
        assert [text for text in fake.texts(ANN) if "paused" in text] == [
            "The schedule “news” is paused: it failed 2 times in a row."
        ]
        found = await one_schedule(pipe.store, "sch_1", 10)
        assert (found.schedule.state, found.schedule.reason) == ("paused", "failed 2 times in a row")
        assert not any(slot.at.timestamp() * 1000 == NOON + MINUTE for slot in found.slots)


async def test_N94_a_run_that_failed_is_not_run_again_by_itself_and_can_be_replayed(
    make_settings: MakeSettings, fake: FakeTelegram
) -> None:
    answers = iter(["", "better now"])

    def agent(_: str) -> str:
        answer = next(answers)
        if not answer:
            raise RuntimeError("no")
        return answer

    settings = make_settings(telegram=telegram(fake), max_attempts=1, sweep_seconds=0.2)
    schedule = a_schedule(targets=parse_targets([f"telegram:{ANN}"]))
    async with open_pipeline(settings) as pipe, running(pipe, schedule, agent):
        await fake.until(lambda fake: len(fake.texts(ANN)) == 1)
        [letter] = await ask(pipe.store, "SELECT id FROM dead WHERE kind = 'inbound'")
        await replay_letter(pipe, letter["id"])
        await fake.until(lambda fake: fake.texts(ANN)[1:] == ["better now"])


async def test_a_repeated_attempt_at_passing_an_answer_on_tells_nobody_twice(
    pipe: Pipeline, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, foreseen: Callable[[str], None]
) -> None:
    foreseen("delivery")
    points = tmp_path / "points"
    points.mkdir()
    arm(points, "accept.after_wake", failpoints.RAISE)
    monkeypatch.setattr("shared.door.reach", failpoints.looking(str(points)))
    async with running(pipe, a_schedule(targets=parse_targets([f"telegram:{ANN}"])), lambda _: "hello"):

        async def passed_on() -> bool:
            rows = await ask(pipe.store, "SELECT state, attempts FROM outbox ORDER BY id")
            return [row["state"] for row in rows] == ["sent", "sent"] and rows[0]["attempts"] == 2

        await until(passed_on)
    assert fake.texts(ANN) == ["hello"] and len(fired(points)) == 1
