"""Control mail as a model: messages of one control key, each ended by itself. There is no session and no version.

The lane is the same as for turns. A worker asks the journal which message is next, carries it out, and ends it by one
transaction: the message's row is compared and set from pending, and the answer is added. What a command does (to stop a turn,
to look) may happen twice, so it is no step; what is promised is that each message is ended and answered once, in order.
Counting attempts is the same code as for turns, and is modelled there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model import lane as lanes
from tests.model.explore import Kind, Step, changed, quickly_replaced
from tests.model.lane import DEAD, EMPTY, LIVE, NOBODY, Lane, Mail

DONE = -1
FAULTS = ("crash", "die", "expire", "flush", "failover", "reply")
_FAULT = {name: i for i, name in enumerate(FAULTS)}


class Pc:
    """What a worker does next."""

    IDLE = 0
    FIND = 1  # ask the journal what is next
    RESTORE = 2  # put the message that the mailbox lost back into it
    OFFER = 3  # mutants only: the answer is added in a transaction of its own
    COMMIT = 4
    ACK = 5  # drop `mail` from the mailbox: it has ended
    DROP = 6  # drop `head` from the mailbox: it had ended before


@quickly_replaced
class Worker(NamedTuple):
    pc: int = Pc.IDLE
    head: Mail = Mail(0, 0)  # the mailbox's first, as claimed
    mail: Mail = Mail(0, 0)  # what the journal says is next
    forgotten: bool = False  # Redis lost something since the wake was started: perhaps this job


OFF = Worker()


@quickly_replaced
class Row(NamedTuple):
    """A journal row; its seq is its place."""

    event: int
    ended: bool = False


@quickly_replaced
class World(NamedTuple):
    receivers: tuple[int, ...]  # 0 new, seq once journaled, DONE
    journal: tuple[Row, ...]
    done: int  # of the key's route
    answers: tuple[int, ...]  # outbox rows, by the event that they answer
    lane: Lane
    workers: tuple[Worker, ...]
    keeper: tuple[int, ...]  # the seqs that a sweep still has to put
    stale: Lane | None
    faults: tuple[int, ...]
    lossy: bool = False  # ghost: Redis lost something


@dataclass(frozen=True)
class Control:
    """A configuration of the model."""

    name: str
    events: int = 2
    duplicates: tuple[int, ...] = ()  # events that the platform delivers a second time
    workers: int = 2
    journaled: bool = True
    sweep: bool = True  # False: while Redis loses nothing, nothing may have to wait for the sweep of the journal
    faults: dict[str, int] = field(default_factory=dict)
    mutant: str = ""

    @property
    def _slots(self) -> tuple[int, ...]:
        return (*range(self.events), *self.duplicates)

    def initial(self) -> World:
        faults = tuple(self.faults.get(name, 0) for name in FAULTS)
        return World((0,) * len(self._slots), (), 0, (), EMPTY, (OFF,) * self.workers, (), None, faults)

    def steps(self, w: World) -> Iterator[Step]:
        for slot in range(len(w.receivers)):
            yield from self._receive(w, slot)
        for i in range(len(w.workers)):
            yield from self._work(w, i)
        if self.mutant != "no housekeeper":
            yield from self._keep(w)
        yield from self._pass_time(w)
        yield from self._break(w)

    def broken(self, w: World) -> list[str]:
        found = []
        ended = [row.event for row in w.journal if row.ended]
        if len(set(w.answers)) < len(w.answers) or sorted(w.answers) != sorted(ended):
            found.append("I5: a message has two answers, or an answer without its end, or an end without its answer")
        states = [row.ended for row in w.journal]
        if self.journaled and False in states and any(states[states.index(False) :]):
            found.append("I2: a later message ended before an earlier one")
        if not found and self.at_rest(w):
            if self.journaled and w.done != len(w.journal):
                found.append("I7: all messages have ended, and their key has no room for others")
            if len(ended) < self.events and (self.journaled or not w.lossy):
                found.append("I1: a message was accepted and never ended")
        return found

    def at_rest(self, w: World) -> bool:
        return (
            all(pc == DONE for pc in w.receivers)
            and all(worker.pc == Pc.IDLE for worker in w.workers)
            and w.lane._replace(seen=()) == EMPTY
            and all(row.ended for row in w.journal)
            and not w.keeper
        )

    def canonical(self, w: World) -> World:
        held = (w.lane,) if w.stale is None else (w.lane, w.stale)
        if lanes.in_order(w.workers, held):
            return w
        stale = None if w.stale is None else lanes.swapped(w.stale)
        return w._replace(workers=w.workers[::-1], lane=lanes.swapped(w.lane), stale=stale)

    # -- receivers

    def _receive(self, w: World, slot: int) -> Iterator[Step]:
        event, pc = self._slots[slot], w.receivers[slot]
        if pc == DONE or any(w.receivers[s] == 0 for s in range(slot)):
            return  # equal messages: the numbering says which is journaled first
        done = w._replace(receivers=changed(w.receivers, slot, DONE))
        if pc > 0:
            after = done._replace(lane=lanes.put(w.lane, Mail(pc, event)))
            yield Step(f"receiver {slot}: mailbox + wake for m{event} (seq {pc})", Kind.WORK, after)
        elif not self.journaled:
            label, seq = f"receiver {slot}: mailbox + wake for m{event}", 1 + w.receivers.count(DONE)
            if event in w.lane.seen:
                yield Step(label + ", seen before", Kind.WORK, done)
                return
            lane = w.lane._replace(seen=tuple(sorted({*w.lane.seen, event})))
            yield Step(label, Kind.WORK, done._replace(lane=lanes.put(lane, Mail(seq, event))))
        elif known := [n for n, row in enumerate(w.journal, 1) if row.event == event]:
            ended = w.journal[known[0] - 1].ended
            after = done if ended else w._replace(receivers=changed(w.receivers, slot, known[0]))
            yield Step(f"receiver {slot}: m{event} again, known as seq {known[0]}", Kind.WORK, after)
        else:
            journal = (*w.journal, Row(event))
            after = w._replace(receivers=changed(w.receivers, slot, len(journal)), journal=journal)
            yield Step(f"receiver {slot}: journal m{event} as seq {len(journal)}", Kind.WORK, after)

    # -- workers

    def _work(self, w: World, i: int) -> Iterator[Step]:
        me, name = w.workers[i], f"worker {i}"
        match me.pc:
            case Pc.IDLE:
                if w.lane.wakes:
                    yield self._start(w, i)
                return
            case Pc.FIND:
                yield Step(f"{name}: ask the journal what is next", Kind.WORK, _with(w, i, self._found(w, me)))
            case Pc.RESTORE:
                after = _with(w, i, me._replace(pc=self._first_write()))
                label = f"{name}: put m{me.mail.event} back into the mailbox"
                yield Step(label, Kind.WORK, after._replace(lane=lanes.put(w.lane, me.mail)))
            case Pc.OFFER:
                after = _with(w._replace(answers=(*w.answers, me.mail.event)), i, me._replace(pc=Pc.COMMIT))
                yield Step(f"{name}: put the answer to m{me.mail.event} out", Kind.WORK, after)
            case Pc.COMMIT:
                yield from self._commit(w, i)
            case Pc.ACK | Pc.DROP:
                yield self._acknowledge(w, i)
        renewed = lanes.renew(w.lane, i, forgotten=me.forgotten)
        if renewed is None or (me.forgotten and w.lane.state is None):
            yield Step(f"{name}: renew: the key is another's, stop", Kind.OTHER, _off(w, i))
        if renewed is not None and renewed != w.lane:
            yield Step(f"{name}: renew the lease", Kind.OTHER, w._replace(lane=renewed))

    def _start(self, w: World, i: int) -> Step:
        popped = lanes.pop(w.lane)
        lane, ours = lanes.start(popped, popped.popped[-1], i, counting=False, apart=True)
        after = w._replace(lane=lane)
        if ours:
            after = _with(after, i, Worker(Pc.FIND, head=lane.mail[0]))
        return Step(f"worker {i}: start the wake: {'leased' if ours else 'nothing to do'}", Kind.WORK, after)

    def _first_write(self) -> int:
        return Pc.OFFER if self.mutant == "answer added before the row is compared" else Pc.COMMIT

    def _found(self, w: World, me: Worker) -> Worker:
        """control.py, find_next."""
        if not self.journaled:
            known = any(row.event == me.head.event for row in w.journal)
            return me._replace(pc=Pc.DROP) if known else me._replace(pc=self._first_write(), mail=me.head)
        waits = [Mail(n, row.event) for n, row in enumerate(w.journal, 1) if not row.ended]
        if not waits or waits[0].seq > me.head.seq:
            return me._replace(pc=Pc.DROP)
        if self.mutant == "messages run as the mailbox has them":
            return me._replace(pc=self._first_write(), mail=me.head)
        pc = self._first_write() if waits[0] == me.head else Pc.RESTORE
        return me._replace(pc=pc, mail=waits[0])

    def _commit(self, w: World, i: int) -> Iterator[Step]:
        """control.sql: the row is compared and set, and the answer added; or AlreadyDone, and nothing is written."""
        me = w.workers[i]
        label, (seq, event) = f"worker {i}: end and answer m{me.mail.event}", me.mail
        ended = w.journal[seq - 1].ended if self.journaled else any(row.event == event for row in w.journal)
        if ended and self.mutant != "message ended without a look at its row":
            by_head = self.mutant == "found ended, acknowledged by its head"
            yield Step(f"{label}: done before", Kind.WORK, _with(w, i, me._replace(pc=Pc.DROP if by_head else Pc.ACK)))
            return
        journal = changed(w.journal, seq - 1, Row(event, True)) if self.journaled else (*w.journal, Row(event, True))
        done = max(w.done, seq) if self.journaled and self.mutant != "route left behind" else w.done
        answered = self.mutant == "answer added before the row is compared"
        answers = w.answers if answered else tuple(sorted((*w.answers, event)))
        after = w._replace(journal=journal, done=done, answers=answers)
        yield Step(label, Kind.WORK, _with(after, i, me._replace(pc=Pc.ACK)))
        if _may(w, "reply"):  # the retry then finds it done before
            yield Step(f"{label}, hear nothing, try again", Kind.FAULT, _spend(after, "reply"))

    def _acknowledge(self, w: World, i: int) -> Step:
        me = w.workers[i]
        seq = (me.mail if me.pc == Pc.ACK else me.head).seq
        label = f"worker {i}: acknowledge seq {seq}"
        if not lanes.holds(w.lane, i):
            return Step(label + ": the key is another's", Kind.WORK, _off(w, i))
        lane, goes_on = lanes.go_on(lanes.drop(w.lane, (seq,)), counting=False, apart=True, hand_over=False)
        if not goes_on:
            return Step(label + ": idle", Kind.WORK, _off(w._replace(lane=lane), i))
        me = Worker(Pc.FIND, head=lane.mail[0], forgotten=me.forgotten)
        return Step(label + ": go on", Kind.WORK, _with(w._replace(lane=lane), i, me))

    # -- the housekeeper, time, and what breaks

    def _keep(self, w: World) -> Iterator[Step]:
        if w.lane.state is not None and (after := lanes.recover(w.lane)) != w.lane:
            yield Step("housekeeper: recover the key", Kind.WORK, w._replace(lane=after))
        if w.keeper:
            seq, *rest = w.keeper
            lane = lanes.put(w.lane, Mail(seq, w.journal[seq - 1].event))
            after_put = w._replace(keeper=tuple(rest), lane=lane)
            yield Step(f"housekeeper: put seq {seq} from the journal", Kind.WORK, after_put)
        elif self.journaled and self.sweep and w.lane.state is None:
            waiting = tuple(n for n, row in enumerate(w.journal, 1) if not row.ended)
            if waiting:
                yield Step("housekeeper: the journal waits, asleep", Kind.WORK, w._replace(keeper=waiting))

    def _pass_time(self, w: World) -> Iterator[Step]:
        state = w.lane.state
        if state is None or state.until != LIVE:
            return
        after = w._replace(lane=lanes.expire(w.lane))
        if state.token in (NOBODY, DEAD):
            yield Step("time: a dead worker's lease ends", Kind.WORK, after)
        elif _may(w, "expire"):
            label = f"fault: the lease of worker {state.token} runs out while it works"
            yield Step(label, Kind.FAULT, _spend(after, "expire"))

    def _break(self, w: World) -> Iterator[Step]:
        if _may(w, "crash"):
            for i, me in enumerate(w.workers):
                if me.pc != Pc.IDLE:
                    yield Step(f"fault: worker {i} dies", Kind.FAULT, _off(_spend(w, "crash"), i))
        if _may(w, "die"):
            for slot, pc in enumerate(w.receivers):
                if pc > 0:
                    after = _spend(w, "die")._replace(receivers=changed(w.receivers, slot, DONE))
                    yield Step(f"fault: receiver {slot} dies between journal and mailbox", Kind.FAULT, after)
        if _may(w, "flush") and w.lane != EMPTY:
            yield Step("fault: FLUSHALL", Kind.FAULT, _redis_is(_spend(w, "flush"), EMPTY))
        if _may(w, "failover"):
            if w.stale is None:
                yield Step("fault: the replica falls behind from here on", Kind.FAULT, w._replace(stale=w.lane))
            elif w.stale != w.lane:
                after = _redis_is(_spend(w, "failover"), w.stale)._replace(stale=None)
                yield Step("fault: failover to the stale replica", Kind.FAULT, after)


def _with(w: World, i: int, me: Worker) -> World:
    return w._replace(workers=changed(w.workers, i, me))


def _off(w: World, i: int) -> World:
    stale = None if w.stale is None else lanes.forget(w.stale, i)
    return w._replace(workers=changed(w.workers, i, OFF), lane=lanes.forget(w.lane, i), stale=stale)


def _redis_is(w: World, lane: Lane) -> World:
    """Redis comes back with other contents."""
    workers = tuple(me._replace(forgotten=me.pc != Pc.IDLE) for me in w.workers)
    return w._replace(lane=lane, workers=workers, lossy=True)


def _may(w: World, fault: str) -> bool:
    return w.faults[_FAULT[fault]] != 0


def _spend(w: World, fault: str) -> World:
    i = _FAULT[fault]
    return w if w.faults[i] < 0 else w._replace(faults=changed(w.faults, i, w.faults[i] - 1))
