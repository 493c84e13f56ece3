"""How many wakes a process takes: never more than it may run, few before their turns run, and each where there is a place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from workers.process import room as rooms
from workers.process.room import Place, Room


def taken(room: Room, count: int) -> list[Place]:
    places = [room.take() for _ in range(count)]
    assert None not in places
    return [place for place in places if place is not None]


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


def test_a_room_is_closed_while_too_many_wakes_are_starting_and_keeps_those_at_hand() -> None:
    room = Room(10, ahead=2)
    first, second = taken(room, 2)
    assert not room.is_open
    third = room.take()  # it was popped before the room closed
    assert third is not None and not room.is_open
    first.begin()
    first.begin()
    assert not room.is_open
    second.begin()
    assert room.is_open


def test_a_wake_that_runs_no_turn_closes_the_room_for_a_moment_only(clock: Callable[[float], None]) -> None:
    room = Room(10, ahead=1)
    [place] = taken(room, 1)
    assert not room.is_open
    clock(rooms.BEGIN_SECONDS)
    assert room.is_open
    place.leave()
    assert len(taken(room, 10)) == 10 and room.take() is None


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


async def test_who_waits_gets_a_place_when_the_turns_of_others_do_not_begin() -> None:
    room = Room(10, ahead=1)
    taken(room, 1)
    async with asyncio.timeout(60):
        place = await room.reserve()
    assert place.keep()


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
    for place in await asyncio.gather(*asking):
        place.leave()
