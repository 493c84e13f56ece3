"""How many wakes of a lane a process runs at once.

CONCURRENCY is a limit: a wake that finds no slot stays in its queue, or goes back there, for other processes.

- While the room is open, a fetcher waits at its queue without a slot and takes one when a wake comes (`take`). So a
  process with one slot serves any number of partitions, and a wake in any of them begins at once.
- When it is not, fetchers get slots in the order of asking (`reserve`), each for one look at its queue. So the slot that
  becomes free brings one wake and not one from every queue.

A process with many slots leaves a part of a backlog to others. It takes 256 wakes at once; from then on it waits for a
fifth of a second each time that it has twice as many: at 256, 512, 1024 and so on. So a process that begins within that
fifth of a second has at least half as many, which is a third of the work of two. When nothing runs, it begins anew.

Nothing here starts a timer for a wake (measured: 15 → 2 µs for a wake's way through the room). Times are compared when
somebody needs a slot, and one timer runs while somebody waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum, auto
from itertools import takewhile
from time import monotonic

LOOK_SECONDS = 0.05  # a server that answers does so sooner; after this time others may have a reserved slot
FIRST_STEP = 256  # wakes that a process takes without a pause; more than CONCURRENCY unless that was raised
PAUSE_SECONDS = 0.2  # two processes that are started together are ready within this time


class _Stage(Enum):
    RESERVED = auto()  # its fetcher looks into its queue
    RUNNING = auto()
    GONE = auto()  # also a reserved slot that others may have because its server does not answer


class Room:
    """Never more than `at_once` slots are taken. Closed while all are, and for a pause at each step before that."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._step = min(FIRST_STEP, at_once)  # the room closes when so many slots are taken
        self._paused: float | None = None  # since when, at this step
        self._reserved: dict[Slot, float] = {}  # since when, oldest first
        self._running = 0
        self._waiting: deque[asyncio.Future[Slot]] = deque()
        self._timer: asyncio.TimerHandle | None = None  # only while somebody waits

    @property
    def slots(self) -> int:
        return self._at_once

    @property
    def running(self) -> int:
        """Slots in which a wake runs."""
        return self._running

    @property
    def is_open(self) -> bool:
        """Whether a wake that comes now may be taken, and nobody waits for a slot."""
        return not self._waiting and self._has_room()

    def take(self) -> Slot | None:
        """A slot for a wake that is at hand. None: the room is full."""
        if self._taken >= self._at_once:
            return None
        return self._enter(Slot(self))

    async def reserve(self) -> Slot:
        """A slot for one look into a queue, in the order of asking."""
        if self.is_open:
            return self._reserve()
        turn: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._watch()
        return await turn

    def dismiss(self) -> None:
        """Give a slot to everyone who waits: the process is stopping, and they are to see it."""
        while self._waiting:
            self._grant()

    @property
    def _taken(self) -> int:
        return len(self._reserved) + self._running

    def _has_room(self) -> bool:
        if self._taken < self._step:
            return True
        now = monotonic()
        for slot in _older_than(now - LOOK_SECONDS, self._reserved):
            del self._reserved[slot]
            slot._stage = _Stage.GONE
        if self._paused is not None and self._paused <= now - PAUSE_SECONDS:
            self._step, self._paused = min(2 * self._step, self._at_once), None
        return self._taken < self._step

    def _reserve(self) -> Slot:
        slot = Slot(self)
        self._reserved[slot] = monotonic()
        slot._stage = _Stage.RESERVED
        return slot

    def _enter(self, slot: Slot) -> Slot:
        slot._stage = _Stage.RUNNING
        self._running += 1
        if self._running >= self._step and self._paused is None and self._step < self._at_once:
            self._paused = monotonic()
            self._watch()
        return slot

    def _grant(self) -> None:
        turn = self._waiting.popleft()
        if not turn.done():  # else the fetcher was cancelled
            turn.set_result(self._reserve())

    def _left(self) -> None:
        """A slot is free again: give slots to those who wait, as far as there are any."""
        if not self._running:
            self._step, self._paused = min(FIRST_STEP, self._at_once), None
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._has_room():
            self._grant()
        self._watch()

    def _watch(self) -> None:
        """Look again when the first of those that keep others waiting has had its time."""
        if self._timer is not None or not self._waiting:
            return
        ends = [next(iter(self._reserved.values())) + LOOK_SECONDS] if self._reserved else []
        ends += [self._paused + PAUSE_SECONDS] if self._paused is not None else []
        if ends:  # else all slots run turns, and the next that ends gives its slot on
            self._timer = asyncio.get_running_loop().call_later(max(min(ends) - monotonic(), 0.001), self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._serve()


def _older_than(time: float, since: dict[Slot, float]) -> list[Slot]:
    return [slot for slot, _ in takewhile(lambda item: item[1] <= time, since.items())]


class Slot:
    """One wake's part of a room: from the look into its queue, or from when it was taken, to its end."""

    __slots__ = ("_room", "_stage")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._stage = _Stage.GONE

    def keep(self) -> bool:
        """A wake came while the slot was reserved: it has the slot from now on. False: others have it by now."""
        room = self._room
        if self._stage is _Stage.RESERVED:
            del room._reserved[self]
        elif room._taken >= room._at_once:
            return False
        room._enter(self)
        return True

    def leave(self) -> None:
        """Nothing came, or it is over. May be repeated."""
        room, stage = self._room, self._stage
        self._stage = _Stage.GONE
        if stage is _Stage.RUNNING:
            room._running -= 1
        elif stage is _Stage.RESERVED:
            del room._reserved[self]
        else:
            return
        room._left()
