"""How many wakes of a lane a process runs at once, and how many it takes before their turns run.

CONCURRENCY is a limit: a wake that finds no place stays in its queue, or goes back there, for other processes.

- While the room is open, a fetcher waits at its queue without a place and takes one when a wake comes (`take`). So a
  process with one place serves any number of partitions, and a wake in any of them begins at once.
- When it is not, fetchers get places in the order of asking (`reserve`), each for one look at its queue. So the place that
  becomes free brings one wake and not one from every queue.

Popping is quicker than beginning a turn. A process that popped as fast as it can would take a whole backlog before another
one gets anything, and then be busy with beginning it. So the room closes while `ahead` wakes are taken whose turn does not
run yet.

Nothing here starts a timer for a wake (measured: 15 → 2 µs for a wake's way through the room). Times are compared when
somebody needs a place, and one timer runs while somebody waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum, auto
from itertools import takewhile
from time import monotonic

LOOK_SECONDS = 0.05  # a server that answers does so sooner; after this time others may have a reserved place
BEGIN_SECONDS = 0.25  # commands and memory notes run no turn; after this time nobody waits for one


class _Stage(Enum):
    RESERVED = auto()  # its fetcher looks into its queue
    STARTING = auto()  # a wake was taken, and its turn does not run yet
    RUNNING = auto()
    GONE = auto()  # also a reserved place that others may have because its server does not answer


class Room:
    """Never more than `at_once` places are taken. Closed while `ahead` wakes are starting."""

    def __init__(self, at_once: int, ahead: int | None = None) -> None:
        self._at_once = at_once
        self._ahead = ahead or at_once
        self._first = _Stage.STARTING if self._ahead < at_once else _Stage.RUNNING
        self._reserved: dict[Place, float] = {}  # since when, oldest first
        self._starting: dict[Place, float] = {}  # the same
        self._running = 0
        self._waiting: deque[asyncio.Future[Place]] = deque()
        self._timer: asyncio.TimerHandle | None = None  # only while somebody waits

    @property
    def is_open(self) -> bool:
        """Whether a wake that comes now may be taken, and nobody waits for a place."""
        return not self._waiting and self._has_room()

    def take(self) -> Place | None:
        """A place for a wake that is at hand. None: the room is full."""
        if len(self._reserved) + len(self._starting) + self._running >= self._at_once:
            return None
        return self._enter(Place(self))

    async def reserve(self) -> Place:
        """A place for one look into a queue, in the order of asking."""
        if self.is_open:
            return self._reserve()
        turn: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._watch()
        return await turn

    def dismiss(self) -> None:
        """Give a place to everyone who waits: the process is stopping, and they are to see it."""
        while self._waiting:
            self._grant()

    def _has_room(self) -> bool:
        if self._fits():
            return True
        self._judge()
        return self._fits()

    def _fits(self) -> bool:
        coming = len(self._reserved) + len(self._starting)
        return coming < self._ahead and coming + self._running < self._at_once

    def _judge(self) -> None:
        """Let nobody wait for a server that does not answer or for a turn that does not begin."""
        now = monotonic()
        for place in _older_than(now - LOOK_SECONDS, self._reserved):
            del self._reserved[place]
            place._stage = _Stage.GONE
        for place in _older_than(now - BEGIN_SECONDS, self._starting):
            del self._starting[place]
            self._running += 1
            place._stage = _Stage.RUNNING

    def _reserve(self) -> Place:
        place = Place(self)
        self._reserved[place] = monotonic()
        place._stage = _Stage.RESERVED
        return place

    def _enter(self, place: Place) -> Place:
        place._stage = self._first
        if self._first is _Stage.STARTING:
            self._starting[place] = monotonic()
            self._watch()
        else:
            self._running += 1
        return place

    def _grant(self) -> None:
        turn = self._waiting.popleft()
        if not turn.done():  # else the fetcher was cancelled
            turn.set_result(self._reserve())

    def _serve(self) -> None:
        """Give places to those who wait, as far as there are any."""
        while self._waiting and self._has_room():
            self._grant()
        self._watch()

    def _watch(self) -> None:
        """Look again when the first of those that keep others waiting has had its time."""
        if self._timer is not None or not self._waiting:
            return
        ends = [next(iter(self._reserved.values())) + LOOK_SECONDS] if self._reserved else []
        ends += [next(iter(self._starting.values())) + BEGIN_SECONDS] if self._starting else []
        if ends:  # else all places run turns, and the next that ends gives its place on
            self._timer = asyncio.get_running_loop().call_later(max(min(ends) - monotonic(), 0.001), self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._serve()


def _older_than(time: float, since: dict[Place, float]) -> list[Place]:
    return [place for place, _ in takewhile(lambda item: item[1] <= time, since.items())]


class Place:
    """One wake's part of a room: from the look into its queue, or from when it was taken, to its end."""

    __slots__ = ("_room", "_stage")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._stage = _Stage.GONE

    def keep(self) -> bool:
        """A wake came while the place was reserved: it has the place from now on. False: others have it by now."""
        room = self._room
        if self._stage is _Stage.RESERVED:
            del room._reserved[self]
        elif len(room._reserved) + len(room._starting) + room._running >= room._at_once:
            return False
        room._enter(self)
        return True

    def begin(self) -> None:
        """The wake's turn runs, so others may be taken. May be repeated."""
        if self._stage is _Stage.STARTING:
            room = self._room
            del room._starting[self]
            room._running += 1
            self._stage = _Stage.RUNNING
            room._serve()

    def leave(self) -> None:
        """Nothing came, or it is over. May be repeated."""
        room, stage = self._room, self._stage
        self._stage = _Stage.GONE
        if stage is _Stage.RUNNING:
            room._running -= 1
        elif stage is _Stage.STARTING:
            del room._starting[self]
        elif stage is _Stage.RESERVED:
            del room._reserved[self]
        else:
            return
        room._serve()
