"""How many wakes of a lane a process has at once, and how fast it takes them.

A fetcher asks for a place before it pops, so wakes that find no room stay in their queue for other processes. A pop that
blocks on an empty queue lends its place: with CONCURRENCY=1 and eight partitions, one place must serve eight fetchers.
So a wake may come when the place is gone; `keep` says so, and the wake goes back to its queue.

Popping is quicker than beginning a turn. A process that popped as fast as it can would take a whole backlog before another
one gets anything, and then be busy with beginning it. So only a few wakes may be taken whose turn does not run yet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum, auto

LEND_AFTER_SECONDS = 0.05  # a queue with waiting wakes answers sooner, also when the event loop is busy
BEGIN_WITHIN_SECONDS = 0.25  # commands and memory notes run no turn; after this time nobody waits for one


class _Stage(Enum):
    POPPING = auto()  # a fetcher waits for a wake
    LENT = auto()  # it still does, and others may have the place meanwhile
    STARTING = auto()  # a wake was taken, and its turn does not run yet
    RUNNING = auto()
    GONE = auto()


_LIMITS = {
    _Stage.POPPING: (LEND_AFTER_SECONDS, _Stage.LENT),
    _Stage.STARTING: (BEGIN_WITHIN_SECONDS, _Stage.RUNNING),
}


class Room:
    def __init__(self, at_once: int, ahead: int | None = None) -> None:
        """Never are more than `at_once` wakes taken and not over. Nothing is popped while `ahead` of them are starting."""
        self._at_once = at_once
        self._ahead = ahead or at_once
        self._held = dict.fromkeys(_Stage, 0)
        self._waiting: deque[asyncio.Future[Place]] = deque()

    async def reserve(self) -> Place:
        """A place to pop for, in the order of asking."""
        if not self._waiting and self._has_room_to_pop():
            return Place(self, _Stage.POPPING)
        turn: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        return await turn

    def take(self) -> Place | None:
        """A place for a wake that is at hand, if there is one."""
        return Place(self, _Stage.STARTING) if self._has_room_to_run() else None

    def dismiss(self) -> None:
        """Give a place to everyone who waits for one: the process is stopping, and they are to see it."""
        while self._waiting:
            self._grant()

    def _has_room_to_run(self) -> bool:
        return self._held[_Stage.STARTING] + self._held[_Stage.RUNNING] < self._at_once

    def _has_room_to_pop(self) -> bool:
        coming = self._held[_Stage.POPPING] + self._held[_Stage.STARTING]
        return coming < self._ahead and coming + self._held[_Stage.RUNNING] < self._at_once

    def _count(self, before: _Stage, after: _Stage) -> None:
        self._held[before] -= 1
        self._held[after] += 1
        while self._waiting and self._has_room_to_pop():
            self._grant()

    def _grant(self) -> None:
        turn = self._waiting.popleft()
        if not turn.done():  # else the fetcher was cancelled
            turn.set_result(Place(self, _Stage.POPPING))


class Place:
    """From before a wake is popped to its end."""

    __slots__ = ("_room", "_stage", "_timer")

    def __init__(self, room: Room, stage: _Stage) -> None:
        self._room = room
        self._timer: asyncio.TimerHandle | None = None
        self._stage = stage
        room._held[stage] += 1
        self._wait()

    def keep(self) -> bool:
        """A wake came: it has this place from now on. False: others filled the room meanwhile."""
        fits = self._room._has_room_to_run()
        self._move(_Stage.STARTING if fits else _Stage.GONE)
        return fits

    def begin(self) -> None:
        """Its turn runs, so the fetchers may look for another wake. May be repeated."""
        if self._stage is _Stage.STARTING:
            self._move(_Stage.RUNNING)

    def leave(self) -> None:
        """Nothing came, or it is over. May be repeated."""
        if self._stage is not _Stage.GONE:
            self._move(_Stage.GONE)

    def _move(self, stage: _Stage) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        before, self._stage = self._stage, stage
        self._wait()
        self._room._count(before, stage)

    def _wait(self) -> None:
        """Limit the time of a stage that keeps others waiting."""
        if self._stage in _LIMITS:
            seconds, after = _LIMITS[self._stage]
            self._timer = asyncio.get_running_loop().call_later(seconds, self._move, after)
