"""A Redis server that is drained, as a model: one key, at its old server and at its new one, while mail comes.

Steps are those of shared/lane/leaving.py and elsewhere.py, with as much of a turn as they need: claim, look at the old server,
load, commit by compare-and-set, acknowledge. A receiver that does not know yet that the server is drained is a fault (`unaware`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model import lane as lanes
from tests.model.explore import Kind, Step, changed, quickly_replaced
from tests.model.lane import DEAD, EMPTY, LIVE, NOBODY, Lane, Mail
from tests.model.world import DONE

OLD, NEW = 0, 1
PLACES = ("the old server", "the new server")
FAULTS = ("drain", "crash", "expire", "unaware", "cut")


class At:
    """Where a worker stands."""

    IDLE = 0
    LOOK = 1  # at the new server: does the old one still know the key?
    LOAD = 2
    RUN = 3  # run the agent and commit
    ACK = 4


@quickly_replaced
class Worker(NamedTuple):
    at: int = At.IDLE
    place: int = OLD
    head: Mail = Mail(0, 0)
    mail: Mail = Mail(0, 0)
    version: int = -1
    fresh: bool = False  # ghost: the lease has not run out since it was claimed


@quickly_replaced
class Move(NamedTuple):
    mail: tuple[Mail, ...]  # as it was at the old server
    arrived: int  # so many of it are at the new one


@quickly_replaced
class World(NamedTuple):
    receivers: tuple[int, ...]  # 0 new, seq once journaled, DONE
    journal: tuple[int, ...]  # events by seq
    ended: frozenset[int]  # events
    rows: tuple[int, ...]  # events as the transcript has them
    version: int
    places: tuple[Lane, ...]
    workers: tuple[Worker, ...]
    drained: bool
    moving: Move | None  # what a housekeeper has begun
    faults: tuple[int, ...]
    early: bool = (
        False  # ghost: only the journal keeps the order, because a receiver was late, a lease ended, or mail was moved
    )


@dataclass(frozen=True)
class Draining:
    """The model under these rules: `messages` of one key."""

    name: str
    messages: int = 2
    journaled: bool = True
    faults: dict[str, int] = field(default_factory=dict)
    mutant: str = ""

    def initial(self) -> World:
        faults = tuple(self.faults.get(name, 0) for name in FAULTS)
        return World(
            (0,) * self.messages, (), frozenset(), (), 0, (EMPTY, EMPTY), (Worker(), Worker()), False, None, faults
        )

    def canonical(self, w: World) -> World:
        return w

    def broken(self, w: World) -> list[str]:
        found = []
        if len(set(w.rows)) < len(w.rows):
            found.append("I1: a message was answered twice")
        order = [w.journal.index(event) for event in w.rows] if self.journaled else list(w.rows)
        if order != sorted(order) and (self.journaled or not w.early):
            found.append("I2: answered in another order")
        running = [me for me in w.workers if me.at >= At.LOAD and me.fresh]
        if len(running) > 1 and not w.early:
            found.append("I3: two workers run one key, and no lease had run out")
        if self.at_rest(w) and len(w.ended) < self.messages:
            found.append("I1: a message was accepted and never ended")
        return found

    def at_rest(self, w: World) -> bool:
        idle = all(me.at == At.IDLE for me in w.workers) and all(pc == DONE for pc in w.receivers)
        return idle and w.places == (EMPTY, EMPTY) and w.moving is None and set(w.journal) <= w.ended

    def steps(self, w: World) -> Iterator[Step]:
        for event in range(self.messages):
            yield from self._receive(w, event)
        for i in range(len(w.workers)):
            yield from self._work(w, i)
        yield from self._keep(w)
        yield from self._pass_time(w)
        yield from self._break(w)

    def _receive(self, w: World, event: int) -> Iterator[Step]:
        pc = w.receivers[event]
        if pc == DONE or (not self.journaled and event and w.receivers[event - 1] != DONE):
            return  # with durability = redis, the order is that in which a sender hears of each
        if self.journaled and pc == 0:
            after = w._replace(journal=(*w.journal, event), receivers=changed(w.receivers, event, len(w.journal) + 1))
            yield Step(f"receiver {event}: journal", Kind.WORK, after)
            return
        home = NEW if w.drained else OLD
        yield Step(f"receiver {event}: put at {PLACES[home]}", Kind.WORK, self._received(w, event, home))
        if w.drained and _may(w, "unaware"):
            late = self._received(_spend(w, "unaware"), event, OLD)._replace(early=True)
            yield Step(f"receiver {event}: does not know yet, put at the old server", Kind.FAULT, late)

    def _received(self, w: World, event: int, place: int) -> World:
        seq = w.receivers[event] or self._next_seq(w, place)
        lane = lanes.put(w.places[place], Mail(seq, event))
        return w._replace(places=changed(w.places, place, lane), receivers=changed(w.receivers, event, DONE))

    def _next_seq(self, w: World, place: int) -> int:
        """With durability = redis: a number behind all that wait there."""
        return max([mail.seq for mail in w.places[place].mail], default=0) + 1

    def _work(self, w: World, i: int) -> Iterator[Step]:
        me, name = w.workers[i], f"worker {i}"
        if me.at == At.IDLE:
            for place, lane in enumerate(w.places):
                if lane.wakes:
                    yield self._start(w, i, place)
            return
        lane = w.places[me.place]
        if me.at == At.LOOK:
            if w.places[OLD].state is not None and self.mutant != "the new server does not wait":
                back = lanes.release(lane, i, delayed=True, spent=False)
                yield Step(f"{name}: the old server still has the key", Kind.WORK, _off(_put(w, me.place, back), i))
            else:
                after = _having(w, i, me._replace(at=At.LOAD))
                yield Step(f"{name}: the old server has nothing", Kind.WORK, after)
        elif me.at == At.LOAD:
            yield Step(f"{name}: load", Kind.WORK, _having(w, i, self._loaded(w, me)))
        elif me.at == At.RUN:
            yield self._commit(w, i)
        elif not lanes.holds(lane, i):
            yield Step(f"{name}: acknowledge: the key is another's", Kind.WORK, _off(w, i))
        else:
            kept, goes_on = lanes.go_on(lanes.drop(lane, (me.head.seq,)), counting=False, apart=True, hand_over=False)
            after = _put(w, me.place, kept)
            if goes_on:
                after = _having(after, i, me._replace(at=At.LOAD, head=kept.mail[0], fresh=True))
                yield Step(f"{name}: acknowledge, go on", Kind.WORK, after)
            else:
                yield Step(f"{name}: acknowledge, idle", Kind.WORK, _off(after, i))

    def _start(self, w: World, i: int, place: int) -> Step:
        lane = lanes.pop(w.places[place])
        lane, ours = lanes.start(lane, lane.popped[-1], i, counting=False, apart=True)
        label = f"worker {i}: start a wake at {PLACES[place]}"
        if not ours:
            return Step(f"{label}: nothing to do, or held", Kind.WORK, _put(w, place, lane))
        at = At.LOOK if place == NEW else At.LOAD
        me = Worker(at, place, lane.mail[0], fresh=True)
        return Step(f"{label}: leased", Kind.WORK, _having(_put(w, place, lane), i, me))

    def _loaded(self, w: World, me: Worker) -> Worker:
        """What the turn is about: the first message that the journal has open; the head, where there is no journal."""
        waiting = [Mail(n, event) for n, event in enumerate(w.journal, 1) if event not in w.ended]
        if me.head.event in w.ended or (self.journaled and (not waiting or waiting[0].seq > me.head.seq)):
            return me._replace(at=At.ACK)
        return me._replace(at=At.RUN, mail=waiting[0] if self.journaled else me.head, version=w.version)

    def _commit(self, w: World, i: int) -> Step:
        me = w.workers[i]
        if w.version != me.version:
            return Step(f"worker {i}: commit refused", Kind.WORK, _having(w, i, me._replace(at=At.LOAD)))
        event = me.mail.event
        at = At.ACK if me.mail == me.head else At.LOAD
        after = w._replace(version=w.version + 1, rows=(*w.rows, event), ended=w.ended | {event})
        return Step(f"worker {i}: commit m{event}", Kind.WORK, _having(after, i, me._replace(at=at)))

    def _keep(self, w: World) -> Iterator[Step]:
        """due.py, elsewhere.py and journal.py."""
        old, new = w.places
        if w.moving is not None:
            yield self._move_on(w, w.moving)
        elif w.drained and old.state is not None and old.state.until != LIVE:
            trusted = old.state.token == NOBODY and old.state.job in old.wakes  # workers serve it: moving is not needed
            yield self._begin_move(w, Kind.OTHER if trusted else Kind.WORK)
        home = NEW if w.drained else OLD
        if w.places[home].state is not None and (woken := lanes.recover(w.places[home])) != w.places[home]:
            yield Step(f"housekeeper: wake the key at {PLACES[home]}", Kind.WORK, _put(w, home, woken))
        asleep = old.state is None and new.state is None and w.moving is None
        for seq, event in enumerate(w.journal, 1):
            if asleep and event not in w.ended and w.receivers[event] == DONE:
                after = _put(w, home, lanes.put(w.places[home], Mail(seq, event)))
                yield Step(f"housekeeper: put m{event} from the journal at {PLACES[home]}", Kind.WORK, after)

    def _begin_move(self, w: World, kind: Kind) -> Step:
        """leave.lua, called for the first time: it gives the mail, or forgets the key where there is none."""
        old = w.places[OLD]
        if not old.mail:
            return Step("housekeeper: nothing is left at the old server", kind, _put(w, OLD, old._replace(state=None)))
        after = w._replace(moving=Move(old.mail, 0))
        if self.mutant == "mail leaves before it has arrived":
            after = _put(after, OLD, old._replace(mail=()))
        return Step("housekeeper: begin to move the key", kind, after)

    def _move_on(self, w: World, move: Move) -> Step:
        """Put the next mail at the new server; when all is there, leave.lua takes it from the old one."""
        if move.arrived == len(move.mail):
            gone = lanes.drop(w.places[OLD], tuple(mail.seq for mail in move.mail))
            return Step("housekeeper: all has arrived", Kind.WORK, _put(w, OLD, gone)._replace(moving=None))
        event, new = move.mail[move.arrived].event, w.places[NEW]
        newer = not self.journaled and any(mail.event > event for mail in new.mail)
        if all(mail.event != event for mail in new.mail):
            seq = move.mail[move.arrived].seq if self.journaled else self._next_seq(w, NEW)
            new = lanes.put(new, Mail(seq, event))
        after = _put(w, NEW, new)._replace(moving=Move(move.mail, move.arrived + 1), early=w.early or newer)
        return Step(f"housekeeper: put m{event} at the new server", Kind.WORK, after)

    def _pass_time(self, w: World) -> Iterator[Step]:
        for place, lane in enumerate(w.places):
            if lane.state is None or lane.state.until != LIVE:
                continue
            after = _put(w, place, lanes.expire(lane))
            if lane.state.token in (NOBODY, DEAD):
                # A delay that the old server causes ends when that has got on: else work would go round in circles.
                waits = place == NEW and lane.state.token == NOBODY and w.places[OLD].state is not None
                yield Step(
                    f"time: a delay or a dead worker's lease ends at {PLACES[place]}",
                    Kind.OTHER if waits else Kind.WORK,
                    after,
                )
            elif _may(w, "expire"):
                token = lane.state.token
                after = _having(_spend(after, "expire"), token, w.workers[token]._replace(fresh=False))
                yield Step(
                    f"fault: the lease of worker {token} runs out while it works",
                    Kind.FAULT,
                    after._replace(early=True),
                )

    def _break(self, w: World) -> Iterator[Step]:
        if not w.drained and _may(w, "drain"):
            yield Step(
                "fault: an operator drains the old server", Kind.FAULT, _spend(w, "drain")._replace(drained=True)
            )
        for i, me in enumerate(w.workers):
            if me.at != At.IDLE and _may(w, "crash"):
                yield Step(f"fault: worker {i} dies", Kind.FAULT, _off(_spend(w, "crash"), i)._replace(early=True))
        if w.moving is not None and _may(w, "cut"):
            yield Step("fault: the housekeeper dies in a move", Kind.FAULT, _spend(w, "cut")._replace(moving=None))


def _having(w: World, i: int, me: Worker) -> World:
    return w._replace(workers=changed(w.workers, i, me))


def _put(w: World, place: int, lane: Lane) -> World:
    return w._replace(places=changed(w.places, place, lane))


def _off(w: World, i: int) -> World:
    """Worker i has ended its wake. A lease that still bears its token belongs to nobody."""
    return _having(w, i, Worker())._replace(places=tuple(lanes.forget(lane, i) for lane in w.places))


def _may(w: World, fault: str) -> bool:
    return w.faults[FAULTS.index(fault)] != 0


def _spend(w: World, fault: str) -> World:
    i = FAULTS.index(fault)
    return w._replace(faults=changed(w.faults, i, w.faults[i] - 1))
