"""Connections that rest are closed after a while, by one timer for all of them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from producers.server.connection import RESTING_SECONDS, HttpConnection, Resting


class Clock:
    """A loop whose time is what a test says, with the timers that were set."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> Any:
        self.timers.append((self.now + delay, callback, args))
        return self.timers[-1]

    def pass_to(self, now: float) -> None:
        """Time passes, and what is due is called."""
        while due := [timer for timer in self.timers if timer[0] <= now]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now = max(self.now, first[0])
            first[1](*first[2])
        self.now = now


class Guest:
    """Stands for a connection."""

    def __init__(self, clock: Clock, resting: Resting, *, in_head: bool = False) -> None:
        self.loop, self.address, self._resting, self._in_head = clock, "192.0.2.1", resting, in_head
        self.transport = SimpleNamespace(close=self._close)
        self.closed_at: float | None = None

    def _close(self) -> None:
        self.closed_at = self.loop.now

    has_rested = HttpConnection.has_rested


def resting_guest(clock: Clock, resting: Resting, **about: Any) -> Guest:
    guest: Any = Guest(clock, resting, **about)
    resting.add(guest)
    return guest  # type: ignore[no-any-return]


def test_a_connection_that_rests_for_long_is_closed() -> None:
    clock, resting = Clock(), Resting(10)
    guest = resting_guest(clock, resting)
    clock.pass_to(100 + RESTING_SECONDS - 1)
    assert guest.closed_at is None
    clock.pass_to(100 + RESTING_SECONDS)
    assert guest.closed_at == 100 + RESTING_SECONDS
    assert clock.timers == []


def test_each_has_its_own_time_and_all_have_one_timer() -> None:
    clock, resting = Clock(), Resting(10)
    guests = []
    for second in range(5):
        clock.pass_to(100.0 + 2 * second)
        guests.append(resting_guest(clock, resting))
    assert len(clock.timers) == 1
    clock.pass_to(300)
    assert [guest.closed_at for guest in guests] == [100.0 + 2 * second + RESTING_SECONDS for second in range(5)]


def test_one_that_asked_again_rests_anew() -> None:
    clock, resting = Clock(), Resting(10)
    guest: Any = resting_guest(clock, resting)
    clock.pass_to(100 + RESTING_SECONDS / 2)
    resting.remove(guest)  # a request
    resting.add(guest)
    clock.pass_to(100 + RESTING_SECONDS)
    assert guest.closed_at is None
    clock.pass_to(100 + 2 * RESTING_SECONDS)
    assert guest.closed_at == 100 + RESTING_SECONDS * 1.5


def test_one_with_a_request_under_way_is_left_alone() -> None:
    clock, resting = Clock(), Resting(10)
    guest: Any = resting_guest(clock, resting)
    resting.remove(guest)
    clock.pass_to(1000)
    assert guest.closed_at is None


def test_one_that_has_begun_to_ask_is_left_to_its_own_deadline() -> None:
    clock, resting = Clock(), Resting(10)
    guest = resting_guest(clock, resting, in_head=True)
    clock.pass_to(100 + RESTING_SECONDS)
    assert guest.closed_at is None
