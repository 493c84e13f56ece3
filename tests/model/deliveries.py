"""Step 10 as a model: outbox rows of one destination, published after their commit, sent by workers that may die.

The lane is the same as for turns. The commit of a row is one step and its publication another: between them its worker
may die, as a receiver may between journal and mailbox. A platform either recognises a part that it has (idempotent) or
shows it twice. A deliverer reads the parts and then marks them one by one; the product reads and marks the next in one
statement (outbox_take.sql), so it can do less than the model can. A write whose answer is lost is repeated by the worker
that made it, which recognises its own mark: here that is the one step that it amounts to, or a crash after it.

An attempt is young for one lease time after its mark, by the database's clock. While its worker lives, it gets old only by
the fault that a lease runs out: a healthy worker ends it before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model import lane as lanes
from tests.model.explore import Kind, Step, changed, quickly_replaced
from tests.model.lane import DEAD, EMPTY, LIVE, NOBODY, Lane, Mail

DECIDED, COMMITTED, PUBLISHED = 0, 1, 2
FAULTS = ("crash", "die", "expire", "flush", "failover", "transient", "busy", "unclear", "refused")
_FAULT = {name: i for i, name in enumerate(FAULTS)}


class Outcome:
    """The states of an outbox row."""

    PENDING = 0
    SENDING = 1
    SENT = 2
    BURIED = 3


OPEN = (Outcome.PENDING, Outcome.SENDING)


@quickly_replaced
class Row(NamedTuple):
    """An outbox row, and what is known of it elsewhere."""

    state: int = Outcome.PENDING
    attempts: int = 0
    waits: int = 0  # attempts that the platform answered with a request to wait
    young: bool = False  # the attempt that it is marked with began less than a lease time ago
    ambiguous: bool = False
    letters: int = 0  # dead letters about it
    arrivals: int = 0  # ghost: how often the platform got it


@quickly_replaced
class Part(NamedTuple):
    """A row as a deliverer read it."""

    id: int
    attempts: int
    sending: bool
    waits: int = 0
    young: bool = False

    @property
    def counted(self) -> int:
        return self.attempts - self.waits


class Pc:
    """What a deliverer does next."""

    IDLE = 0
    READ = 1
    FLAG = 2  # found in `sending`: say that it is ambiguous
    MARK = 3  # write `sending`, once
    SEND = 4
    SENT = 5
    UNCLEAR = 6  # no answer came: say that it is ambiguous
    FAILED = 7
    BURY = 8
    WAIT = 9  # release the key, delayed
    ACK = 10
    BUSY = 11  # the platform asked to wait: the attempt does not count


@quickly_replaced
class Worker(NamedTuple):
    pc: int = Pc.IDLE
    parts: tuple[Part, ...] = ()
    done: tuple[int, ...] = ()
    forgotten: bool = False  # Redis lost something since the wake was started: perhaps this job


OFF = Worker()


@quickly_replaced
class World(NamedTuple):
    published: tuple[int, ...]
    rows: tuple[Row, ...]
    lane: Lane
    workers: tuple[Worker, ...]
    keeper: int  # the row that a sweep is about to put
    stale: Lane | None
    faults: tuple[int, ...]
    early: bool  # ghost: a part arrived before an earlier one that was still to come
    both: bool = False  # ghost: an attempt began while another worker's young one was under way


@dataclass(frozen=True)
class Deliveries:
    """A configuration of the model."""

    name: str
    rows: int = 2
    workers: int = 2
    idempotent: bool = False
    resend: bool = True  # the policy for ambiguous parts where the platform cannot tell
    max_attempts: int = 3
    poison: bool = False  # sending part 1 brings its worker down, every time
    faults: dict[str, int] = field(default_factory=dict)
    mutant: str = ""

    def initial(self) -> World:
        faults = tuple(self.faults.get(name, 0) for name in FAULTS)
        rows = (Row(),) * self.rows
        return World((DECIDED,) * self.rows, rows, EMPTY, (OFF,) * self.workers, 0, None, faults, False)

    def steps(self, w: World) -> Iterator[Step]:
        yield from self._publish(w)
        for i in range(len(w.workers)):
            yield from self._work(w, i)
        if self.mutant != "no housekeeper":
            yield from self._keep(w)
        yield from self._pass_time(w)
        yield from self._break(w)

    def broken(self, w: World) -> list[str]:
        found = []
        for n, row in enumerate(w.rows, 1):
            if row.arrivals > 1 and not self.idempotent and not row.ambiguous:
                found.append(f"I6: part {n} was sent twice and nobody flagged it")
            if row.arrivals > 1 and not self.idempotent and not self.resend:
                found.append(f"I6: part {n} was sent twice against the policy")
            if row.state == Outcome.SENT and not row.arrivals and self.at_rest(w):
                found.append(f"I5: part {n} counts as sent and was not")
            if row.letters > 1 or (row.letters and row.state != Outcome.BURIED and not row.ambiguous):
                found.append(f"I9: part {n} has a dead letter that somebody who lost the race wrote")
            if row.state == Outcome.BURIED and row.letters != 1:
                found.append(f"I5: part {n} is buried without a dead letter")
            if row.state == Outcome.BURIED and row.arrivals and not row.ambiguous:
                found.append(f"I6: part {n} arrived, is buried, and nobody flagged it")
            given_up = row.state == Outcome.BURIED and not row.ambiguous and not self.faults.get("refused")
            if given_up and row.attempts - row.waits < self.max_attempts:
                found.append(f"I5: part {n} is buried before it was tried often enough")
        if w.early:
            found.append("I5: a part arrived before an earlier one")
        if w.both:
            found.append("I6: a part was sent by two workers at once")
        return found

    def at_rest(self, w: World) -> bool:
        return (
            all(step == PUBLISHED for step in w.published)
            and all(row.state not in OPEN for row in w.rows)
            and all(worker.pc == Pc.IDLE for worker in w.workers)
            and w.lane == EMPTY
            and not w.keeper
        )

    def canonical(self, w: World) -> World:
        held = (w.lane,) if w.stale is None else (w.lane, w.stale)
        if lanes.in_order(w.workers, held):
            return w
        stale = None if w.stale is None else lanes.swapped(w.stale)
        return w._replace(workers=w.workers[::-1], lane=lanes.swapped(w.lane), stale=stale)

    # -- commit and publish

    def _publish(self, w: World) -> Iterator[Step]:
        for n, step in enumerate(w.published):
            if step == COMMITTED:
                after = w._replace(published=changed(w.published, n, PUBLISHED), lane=lanes.put(w.lane, Mail(n + 1, 0)))
                yield Step(f"turn worker: publish part {n + 1}", Kind.WORK, after)
            elif step == DECIDED:
                yield Step(
                    f"turn worker: commit part {n + 1}",
                    Kind.WORK,
                    w._replace(published=changed(w.published, n, COMMITTED)),
                )
                return

    # -- deliverers

    def _work(self, w: World, i: int) -> Iterator[Step]:
        me, name = w.workers[i], f"deliverer {i}"
        if me.pc == Pc.IDLE:
            if w.lane.wakes:
                yield self._start(w, i)
            return
        part = me.parts[0] if me.parts else Part(0, 0, False)
        row = w.rows[part.id - 1]
        match me.pc:
            case Pc.READ:
                rows = [
                    (n, row) for n, row in enumerate(w.rows, 1) if w.published[n - 1] != DECIDED and row.state in OPEN
                ]
                parts = tuple(
                    Part(n, row.attempts, row.state == Outcome.SENDING, row.waits, row.young) for n, row in rows
                )
                me = self._turn_to(me._replace(parts=parts))
                yield Step(f"{name}: read what waits: {[n for n, _ in rows]}", Kind.WORK, _with(w, i, me))
            case Pc.FLAG:
                pc = Pc.MARK if self.idempotent or self.resend else Pc.BURY
                after = _with(w, i, me._replace(pc=pc), part.id, row._replace(ambiguous=True))
                yield Step(f"{name}: part {part.id} may have arrived before: flag it", Kind.WORK, after)
            case Pc.MARK:
                yield self._mark(w, i, part, row)
            case Pc.SEND:
                yield from self._send(w, i, part, row)
            case Pc.SENT:
                after = _with(w, i, self._next(me), part.id, row._replace(state=Outcome.SENT, young=False))
                if self.mutant == "sent mark before send":
                    after = _with(after, i, me._replace(pc=Pc.SEND))
                yield Step(f"{name}: mark part {part.id} sent", Kind.WORK, after)
            case Pc.UNCLEAR:
                give_up = part.counted + 1 >= self.max_attempts or not (
                    self.idempotent or self.resend or self.mutant == "unclear sends always repeated"
                )
                after = _with(
                    w, i, me._replace(pc=Pc.BURY if give_up else Pc.FAILED), part.id, row._replace(ambiguous=True)
                )
                yield Step(f"{name}: flag part {part.id}", Kind.WORK, after)
            case Pc.FAILED | Pc.BUSY:
                if row.state == Outcome.SENDING and row.attempts == part.attempts + 1:  # outbox_failed.sql
                    row = row._replace(state=Outcome.PENDING, young=False, waits=row.waits + (me.pc == Pc.BUSY))
                yield Step(
                    f"{name}: part {part.id} is to be sent later",
                    Kind.WORK,
                    _with(w, i, me._replace(pc=Pc.WAIT), part.id, row),
                )
            case Pc.BURY:
                yield Step(
                    f"{name}: bury part {part.id}", Kind.WORK, _with(w, i, self._next(me), part.id, self._buried(row))
                )
            case Pc.WAIT:
                lane = lanes.release(w.lane, i, delayed=True, spent=False)
                yield Step(f"{name}: give the destination back, delayed", Kind.WORK, _off(w._replace(lane=lane), i))
            case Pc.ACK:
                yield self._acknowledge(w, i)
        renewed = lanes.renew(w.lane, i, forgotten=me.forgotten)
        if renewed is None or (me.forgotten and w.lane.state is None):
            yield Step(f"{name}: renew: the destination is another's, stop", Kind.OTHER, _off(w, i))
        if renewed is not None and renewed != w.lane:
            yield Step(f"{name}: renew the lease", Kind.OTHER, w._replace(lane=renewed))

    def _start(self, w: World, i: int) -> Step:
        popped = lanes.pop(w.lane)
        lane, ours = lanes.start(popped, popped.popped[-1], i, counting=False, apart=True)
        after = w._replace(lane=lane)
        if ours:
            after = _with(after, i, Worker(Pc.READ, done=(lane.mail[0].seq,)))
        return Step(f"deliverer {i}: start the wake: {'leased' if ours else 'nothing to do'}", Kind.WORK, after)

    def _turn_to(self, me: Worker) -> Worker:
        """What is to be done first with the next part."""
        if not me.parts:
            return me._replace(pc=Pc.ACK)
        part = me.parts[0]
        if part.sending:
            waits = part.young and self.mutant != "a young attempt taken over at once"
            return me._replace(pc=Pc.WAIT if waits else Pc.FLAG)
        if self.mutant == "sent mark before send":
            return me._replace(pc=Pc.SENT)
        return me._replace(pc=Pc.SEND if self.mutant == "no sending mark" else Pc.MARK)

    def _next(self, me: Worker) -> Worker:
        done = tuple(sorted({*me.done, me.parts[0].id}))
        return self._turn_to(me._replace(parts=me.parts[1:], done=done))

    def _mark(self, w: World, i: int, part: Part, row: Row) -> Step:
        """outbox_sending.sql: a compare-and-set on the count of attempts."""
        me, label = w.workers[i], f"deliverer {i}: mark part {part.id} sending"
        if part.sending and part.counted >= self.max_attempts and self.mutant != "attempts checked only after an error":
            return Step(
                f"deliverer {i}: part {part.id} never came to an end", Kind.WORK, _with(w, i, me._replace(pc=Pc.BURY))
            )
        if row.state not in OPEN or row.attempts != part.attempts:
            passes = self.mutant == "going on past a part that another sends"
            me = self._next(me) if passes else me._replace(pc=Pc.WAIT)
            return Step(label + ": another did", Kind.WORK, _with(w, i, me))
        most = self.max_attempts + self.faults.get("busy", 0) + 2
        attempts = min(row.attempts + 1, most)  # the count is kept finite, beyond where it decides
        w = w._replace(both=w.both or (row.young and _under_way(w, part.id)))
        row = row._replace(state=Outcome.SENDING, attempts=attempts, young=True)
        return Step(label, Kind.WORK, _with(w, i, me._replace(pc=Pc.SEND), part.id, row))

    def _send(self, w: World, i: int, part: Part, row: Row) -> Iterator[Step]:
        me, label = w.workers[i], f"deliverer {i}: send part {part.id}"
        arrived = _arrived(w, part.id)
        if self.poison and part.id == 1:
            yield Step(label + ", which brings the worker down", Kind.WORK, _off(w, i))
            return
        first_mark = self.mutant == "sent mark before send"
        yield Step(label, Kind.WORK, _with(arrived, i, self._next(me) if first_mark else me._replace(pc=Pc.SENT)))
        last = part.counted + 1 >= self.max_attempts
        if _may(w, "transient"):
            after = _with(_spend(w, "transient"), i, me._replace(pc=Pc.BURY if last else Pc.FAILED))
            yield Step(label + ": it did not go out", Kind.FAULT, after)
        if _may(w, "busy"):
            after = _with(_spend(w, "busy"), i, me._replace(pc=Pc.BUSY))
            yield Step(label + ": told to wait", Kind.FAULT, after)
        if _may(w, "unclear"):
            me = me._replace(pc=Pc.UNCLEAR)
            yield Step(label + ": it arrives, no answer comes", Kind.FAULT, _with(_spend(arrived, "unclear"), i, me))
            yield Step(label + ": it is lost, no answer comes", Kind.FAULT, _with(_spend(w, "unclear"), i, me))
        if _may(w, "refused"):
            after = _with(_spend(w, "refused"), i, w.workers[i]._replace(pc=Pc.BURY))
            yield Step(label + ": refused", Kind.FAULT, after)

    def _buried(self, row: Row) -> Row:
        if row.state in OPEN:
            return row._replace(state=Outcome.BURIED, young=False, letters=row.letters + 1)
        if self.mutant == "dead letter without looking at the row":
            return row._replace(letters=row.letters + 1)
        return row

    def _acknowledge(self, w: World, i: int) -> Step:
        me, label = w.workers[i], f"deliverer {i}: acknowledge {list(w.workers[i].done)}"
        if not lanes.holds(w.lane, i):
            return Step(label + ": the destination is another's", Kind.WORK, _off(w, i))
        lane, goes_on = lanes.go_on(lanes.drop(w.lane, me.done), counting=False, apart=True, hand_over=False)
        if not goes_on:
            return Step(label + ": idle", Kind.WORK, _off(w._replace(lane=lane), i))
        me = Worker(Pc.READ, done=(lane.mail[0].seq,))
        return Step(label + ": go on", Kind.WORK, _with(w._replace(lane=lane), i, me))

    # -- the housekeeper, time, and what breaks

    def _keep(self, w: World) -> Iterator[Step]:
        if w.lane.state is not None and (after := lanes.recover(w.lane)) != w.lane:
            yield Step("housekeeper: recover the destination", Kind.WORK, w._replace(lane=after))
        if w.keeper:
            after_put = w._replace(keeper=0, lane=lanes.put(w.lane, Mail(w.keeper, 0)))
            yield Step(f"housekeeper: put part {w.keeper} from the outbox", Kind.WORK, after_put)
        elif w.lane.state is None:
            waiting = [n for n, row in enumerate(w.rows, 1) if w.published[n - 1] != DECIDED and row.state in OPEN]
            if waiting:
                yield Step("housekeeper: the outbox waits, asleep", Kind.WORK, w._replace(keeper=waiting[0]))

    def _pass_time(self, w: World) -> Iterator[Step]:
        for id, row in enumerate(w.rows, 1):
            if row.young:
                yield from self._get_old(w, id, row)
        state = w.lane.state
        if state is None or state.until != LIVE:
            return
        after = w._replace(lane=lanes.expire(w.lane))
        if state.token in (NOBODY, DEAD):
            yield Step("time: a delay or a dead worker's lease ends", Kind.WORK, after)
        elif _may(w, "expire"):
            label = f"fault: the lease of deliverer {state.token} runs out while it works"
            yield Step(label, Kind.FAULT, _spend(after, "expire"))

    def _get_old(self, w: World, id: int, row: Row) -> Iterator[Step]:
        after = w._replace(rows=changed(w.rows, id - 1, row._replace(young=False)))
        if not _under_way(w, id):
            yield Step(f"time: the attempt at part {id}, which nobody makes any more, gets old", Kind.WORK, after)
        elif _may(w, "expire"):
            label = f"fault: the lease time of the attempt at part {id} runs out while it works"
            yield Step(label, Kind.FAULT, _spend(after, "expire"))

    def _break(self, w: World) -> Iterator[Step]:
        if _may(w, "crash"):
            for i, me in enumerate(w.workers):
                if me.pc != Pc.IDLE:
                    yield Step(f"fault: deliverer {i} dies", Kind.FAULT, _off(_spend(w, "crash"), i))
        if _may(w, "die"):
            for n, step in enumerate(w.published):
                if step == COMMITTED:
                    after = _spend(w, "die")._replace(published=changed(w.published, n, PUBLISHED))
                    yield Step(f"fault: the worker dies between commit and publishing part {n + 1}", Kind.FAULT, after)
        if _may(w, "flush") and w.lane != EMPTY:
            yield Step("fault: FLUSHALL", Kind.FAULT, _redis_is(_spend(w, "flush"), EMPTY))
        if _may(w, "failover"):
            if w.stale is None:
                yield Step("fault: the replica falls behind from here on", Kind.FAULT, w._replace(stale=w.lane))
            elif w.stale != w.lane:
                after = _redis_is(_spend(w, "failover"), w.stale)._replace(stale=None)
                yield Step("fault: failover to the stale replica", Kind.FAULT, after)


def _with(w: World, i: int, me: Worker, id: int = 0, row: Row | None = None) -> World:
    w = w._replace(workers=changed(w.workers, i, me))
    return w if row is None else w._replace(rows=changed(w.rows, id - 1, row))


def _off(w: World, i: int) -> World:
    stale = None if w.stale is None else lanes.forget(w.stale, i)
    return w._replace(workers=changed(w.workers, i, OFF), lane=lanes.forget(w.lane, i), stale=stale)


def _redis_is(w: World, lane: Lane) -> World:
    """Redis comes back with other contents."""
    workers = tuple(me._replace(forgotten=me.pc != Pc.IDLE) for me in w.workers)
    return w._replace(lane=lane, workers=workers)


def _arrived(w: World, id: int) -> World:
    row = w.rows[id - 1]
    earlier = [
        other for other in w.rows[: id - 1] if other.state in OPEN and not other.arrivals and not other.ambiguous
    ]
    early = w.early or bool(earlier and not row.arrivals and not row.ambiguous)
    return w._replace(rows=changed(w.rows, id - 1, row._replace(arrivals=min(row.arrivals + 1, 2))), early=early)


def _under_way(w: World, id: int) -> bool:
    """Whether a worker is making an attempt at this part, or writing down how it ended."""
    making = (Pc.SEND, Pc.SENT, Pc.UNCLEAR, Pc.FAILED, Pc.BUSY)
    return any(me.pc in making and me.parts[0].id == id for me in w.workers)


def _may(w: World, fault: str) -> bool:
    return w.faults[_FAULT[fault]] != 0


def _spend(w: World, fault: str) -> World:
    i = _FAULT[fault]
    return w if w.faults[i] < 0 else w._replace(faults=changed(w.faults, i, w.faults[i] - 1))
