"""How many wakes a process takes: never more than it may run, part of a backlog at a time, and each where there is a slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from workers.process import room as rooms
from workers.process.room import Room, Slot


def taken(room: Room, count: int) -> list[Slot]:
    slots = [room.take() for _ in range(count)]
    assert None not in slots
    return [slot for slot in slots if slot is not None]


def fill(room: Room) -> int:
    """Take slots while the room is open. Gives how many there were."""
    count = 0
    while room.is_open:
        taken(room, 1)
        count += 1
    return count


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the room's time on."""
    now = 100.0

    def move(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(rooms, "monotonic", lambda: now)
    return move


def test_no_more_places_are_taken_than_there_are() -> None:
    room = Room(2)
    first, _ = taken(room, 2)
    assert room.take() is None and not room.is_open
    first.leave()
    first.leave()  # which may be repeated
    assert room.is_open
    taken(room, 1)
    assert room.take() is None


def test_a_room_pauses_at_256_places_and_whenever_they_have_doubled(clock: Callable[[float], None]) -> None:
    room, most = Room(2000), 0
    for step in (256, 512, 1024):
        most += fill(room)
        assert most == step
        clock(rooms.PAUSE_SECONDS * 0.99)
        assert not room.is_open
        clock(rooms.PAUSE_SECONDS * 0.02)
    assert most + fill(room) == 2000
    clock(10 * rooms.PAUSE_SECONDS)
    assert not room.is_open and room.take() is None  # the hard limit


def test_a_room_that_is_no_larger_than_the_first_step_never_pauses(clock: Callable[[float], None]) -> None:
    room = Room(rooms.FIRST_STEP)
    taken(room, rooms.FIRST_STEP - 1)[0].leave()
    taken(room, 2)
    assert room.take() is None
    clock(rooms.PAUSE_SECONDS)
    assert not room.is_open


def test_a_pause_closes_the_room_and_keeps_the_wakes_at_hand(clock: Callable[[float], None]) -> None:
    room = Room(1000)
    fill(room)
    assert not room.is_open
    assert room.take() is not None and not room.is_open  # it was popped before the room closed


def test_a_pause_ends_in_its_time_although_turns_end_and_others_begin(clock: Callable[[float], None]) -> None:
    room = Room(1000)
    slots = taken(room, 256)
    for _ in range(4):
        clock(rooms.PAUSE_SECONDS / 3)
        slots.pop().leave()
        slots += taken(room, 1)
    assert room.is_open and fill(room) == 256


def test_a_room_that_was_empty_begins_with_the_first_step_again(clock: Callable[[float], None]) -> None:
    room = Room(1000)
    slots = taken(room, 256)
    clock(rooms.PAUSE_SECONDS)
    assert room.is_open
    for slot in slots:
        slot.leave()
    assert fill(room) == 256 and not room.is_open


@pytest.mark.parametrize("backlog", [500, 2000, 5000, 30_000])
@pytest.mark.parametrize("later", [0.0, 0.1, 0.15, 0.19])
def test_of_any_large_backlog_a_worker_that_begins_a_little_later_gets_a_third(
    clock: Callable[[float], None], backlog: int, later: float
) -> None:
    """Both take as fast as their rooms allow, and no turn ends meanwhile."""
    first, second, left, passed = Room(backlog), Room(backlog), backlog, 0.0
    shares = {first: 0, second: 0}
    while left:
        for room in (first, second) if passed >= later else (first,):
            while left and room.is_open:
                taken(room, 1)
                shares[room] += 1
                left -= 1
        clock(0.01)
        passed += 0.01
    assert min(shares.values()) >= backlog / 3 - 1


async def test_places_are_reserved_in_the_order_of_asking() -> None:
    room = Room(1)
    [running] = taken(room, 1)
    asking = [asyncio.create_task(room.reserve()) for _ in range(3)]
    await asyncio.sleep(0)
    for task in asking:
        assert not task.done()
        running.leave()
        running = await task
        assert room.take() is None and running.keep()


async def test_a_look_that_found_nothing_gives_its_place_to_the_next() -> None:
    room = Room(1)
    [running] = taken(room, 1)
    asking = [asyncio.create_task(room.reserve()) for _ in range(64)]
    await asyncio.sleep(0)
    running.leave()
    for task in asking:
        (await task).leave()
    assert room.is_open and room.take() is not None


async def test_a_server_that_does_not_answer_keeps_no_place_from_others() -> None:
    room = Room(1)
    silent = await room.reserve()
    async with asyncio.timeout(60):
        other = await room.reserve()  # nobody says anything: time alone gives it
    assert other.keep() and not silent.keep()
    silent.leave()
    assert room.take() is None
    other.leave()
    assert room.take() is not None


async def test_who_waits_gets_a_place_when_the_pause_is_over() -> None:
    room = Room(1000)
    fill(room)
    async with asyncio.timeout(60):
        slot = await room.reserve()
    assert slot.keep()


@pytest.mark.usefixtures("clock")  # no time passes: only the end gives a slot
async def test_who_waits_gets_a_slot_as_soon_as_the_turn_of_another_ends() -> None:
    room = Room(1)
    [first] = taken(room, 1)
    asking = asyncio.create_task(room.reserve())
    await asyncio.sleep(0)
    assert not asking.done()
    first.leave()
    await asyncio.sleep(0)
    assert asking.done() and asking.result().keep()


async def test_a_fetcher_that_was_cancelled_while_it_waited_costs_no_place() -> None:
    room = Room(1)
    [running] = taken(room, 1)
    gone, next_one = asyncio.create_task(room.reserve()), asyncio.create_task(room.reserve())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    running.leave()
    assert (await next_one).keep()


async def test_everyone_who_waits_is_let_go_when_the_process_stops() -> None:
    room = Room(1)
    taken(room, 1)
    asking = [asyncio.create_task(room.reserve()) for _ in range(3)]
    await asyncio.sleep(0)
    room.dismiss()
    for slot in await asyncio.gather(*asking):
        slot.leave()
