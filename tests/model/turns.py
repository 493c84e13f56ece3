"""Steps 3 to 9 as a model: receivers, journal, mailbox and wake, lease, load, commit, acknowledge, housekeeper.

One model step is one thing that others can see: a script in Redis, a transaction or a query in SQL. What happens between
two of them (the agent's run above all) is no step of its own: it is how long the next step may take, which is any time.
A crash is possible before every step. Delivery starts from committed outbox rows and is modelled apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tests.model import lane as lanes
from tests.model.explore import Kind, Step, changed
from tests.model.lane import DEAD, EMPTY, LIVE, NOBODY, Mail
from tests.model.worker import TurnWorker
from tests.model.world import (
    ANSWERED,
    DONE,
    FAULTS,
    OFF,
    PENDING,
    REWRITTEN,
    Pc,
    Row,
    Rules,
    World,
    having,
    may,
    off,
    redis_is,
    spend,
)


@dataclass(frozen=True)
class Turns(Rules):
    """The model under the given rules."""

    @cached_property
    def _worker(self) -> TurnWorker:
        return TurnWorker(self)

    def initial(self) -> World:
        keys = max(self.key_of) + 1
        return World(
            receivers=(0,) * len(self._slots),
            journal=((),) * keys,
            done=(0,) * keys,
            version=0,
            rows=(),
            outbox=(),
            dead=(),
            lanes=(EMPTY,) * keys,
            workers=(OFF,) * self.workers,
            keeper=(),
            rewriter=None,
            rewrites=self.rewrites,
            stale=None,
            faults=tuple(self.faults.get(name, 0) for name in FAULTS),
            tries=(0,) * len(self.key_of),
            lossy=False,
        )

    @property
    def _slots(self) -> tuple[int, ...]:
        return (*range(len(self.key_of)), *self.duplicates)

    def steps(self, w: World) -> Iterator[Step]:
        for slot in range(len(w.receivers)):
            yield from self._receive(w, slot)
        for i in range(len(w.workers)):
            yield from self._worker.steps(w, i)
        yield from self._rewrite(w)
        if self.mutant != "no housekeeper":
            yield from self._keep(w)
        yield from self._pass_time(w)
        yield from self._pause(w)
        yield from self._break(w)

    def broken(self, w: World) -> list[str]:
        found = []
        ended = [event for event in (*w.rows, *w.dead) if event != REWRITTEN]
        if len(set(ended)) < len(ended):
            found.append("I1: a message has two user rows, or a row and a dead letter")
        for key, journal in enumerate(w.journal):
            states = [row.state for row in journal]
            if self.journaled and PENDING in states and any(states[states.index(PENDING) :]):
                found.append("I2: a later message ended before an earlier one of its key")
            place = {row.event: seq for seq, row in reversed(list(enumerate(journal)))}
            order = [place[e] for e in w.rows if e >= 0 and self.key_of[e] == key and e in place]
            if order != sorted(order):
                found.append("I2: user rows are not in the journal's order")
            for row in journal:
                if row.state == ANSWERED and row.event not in w.rows:
                    found.append("I1: an answered message is gone from the transcript")
            if sum(worker.fresh and worker.key == key for worker in w.workers) > 1:
                found.append("I3: two workers hold one key, and no lease had run out")
        if len(set(w.outbox)) < len(w.outbox) or not set(ended) <= set(w.outbox):
            found.append("I5: a reply has two outbox rows, or none")
        if self.joined and w.refused and not w.lossy:
            found.append("I3: a commit was refused, and nothing had gone wrong: two keys ran on one session")
        for event in w.dead:
            if w.tries[event] < self.limit:
                found.append(f"I1: a message was set aside after {w.tries[event]} of {self.limit} attempts")
        return found or (self._lost(w) if self.at_rest(w) else [])

    def _lost(self, w: World) -> list[str]:
        if not {event for event in (*w.rows, *w.dead) if event != REWRITTEN} >= set(w.outbox):
            return ["I9: an outbox row without its commit"]
        if not self.journaled and w.lossy:
            return []
        missing = [event for event in range(len(self.key_of)) if event not in w.rows and event not in w.dead]
        return [f"I1: message {event} was accepted and never ended" for event in missing]

    def at_rest(self, w: World) -> bool:
        """Nothing in hand, nothing in Redis, nothing waiting in the journal."""
        return (
            all(pc == DONE for pc in w.receivers)
            and all(worker.pc == Pc.IDLE for worker in w.workers)
            and all(lane._replace(seen=()) == EMPTY for lane in w.lanes)
            and all(row.state != PENDING for journal in w.journal for row in journal)
            and not w.keeper
            and not w.held
        )

    def canonical(self, w: World) -> World:
        if lanes.in_order(w.workers, w.lanes if w.stale is None else w.lanes + w.stale):
            return w
        stale = None if w.stale is None else tuple(map(lanes.swapped, w.stale))
        tickets = tuple(1 - i for i in w.tickets)
        workers = w.workers[::-1]
        return w._replace(workers=workers, lanes=tuple(map(lanes.swapped, w.lanes)), stale=stale, tickets=tickets)

    # -- receivers

    def _receive(self, w: World, slot: int) -> Iterator[Step]:
        event, pc = self._slots[slot], w.receivers[slot]
        key = self.key_of[event]
        if pc == DONE:
            return
        if pc > 0:
            after = w._replace(receivers=changed(w.receivers, slot, DONE))
            yield Step(
                f"receiver {slot}: mailbox + wake for m{event} (seq {pc})",
                Kind.WORK,
                self._put(after, key, Mail(pc, event)),
            )
            return
        before = [
            s
            for s, e in enumerate(self._slots[:slot])
            if (e == event or slot < len(self.key_of)) and self.key_of[e] == key
        ]
        if any(w.receivers[s] == 0 for s in before):
            return  # equal messages: the numbering says which is journaled first
        if not self.journaled:
            yield self._accept_in_redis(w, slot, event, key)
            return
        known = [seq for seq, row in enumerate(w.journal[key], 1) if row.event == event]
        if known and self.mutant != "no unique event id":
            seq = known[0]
            ended = w.journal[key][seq - 1].state != PENDING
            after = w._replace(receivers=changed(w.receivers, slot, DONE if ended else seq))
            yield Step(f"receiver {slot}: m{event} again, known as seq {seq}", Kind.WORK, after)
            return
        journal = (*w.journal[key], Row(event))
        after = w._replace(receivers=changed(w.receivers, slot, len(journal)), journal=changed(w.journal, key, journal))
        yield Step(f"receiver {slot}: journal m{event} as seq {len(journal)}", Kind.WORK, after)

    def _accept_in_redis(self, w: World, slot: int, event: int, key: int) -> Step:
        """durability = redis: dedupe memory, mailbox and wake in one script; the mailbox gives the number."""
        after = w._replace(receivers=changed(w.receivers, slot, DONE))
        label = f"receiver {slot}: mailbox + wake for m{event}"
        lane = w.lanes[key]
        if event in lane.seen and self.mutant != "no unique event id":
            return Step(label + ", seen before", Kind.WORK, after)
        seq = 1 + sum(pc == DONE for pc in w.receivers)  # stands for the clock: it only grows
        lane = lane._replace(seen=tuple(sorted({*lane.seen, event})))
        return Step(
            label, Kind.WORK, self._put(after._replace(lanes=changed(w.lanes, key, lane)), key, Mail(seq, event))
        )

    def _put(self, w: World, key: int, mail: Mail) -> World:
        wake = True
        if self.mutant == "wake dedupe by RQ state":
            wake = not w.lanes[key].wakes and not any(me.pc != Pc.IDLE and me.key == key for me in w.workers)
        return w._replace(lanes=changed(w.lanes, key, lanes.put(w.lanes[key], mail, wake=wake)))

    # -- other writers of the transcript

    def _rewrite(self, w: World) -> Iterator[Step]:
        """Reset and compaction: read the transcript, think, write it anew, under the same compare-and-set."""
        if w.rewriter is None:
            if w.rewrites:
                after = w._replace(rewriter=(w.version, w.rows), rewrites=w.rewrites - 1)
                yield Step(f"compaction: read version {w.version}", Kind.OTHER, after)
            return
        version, rows = w.rewriter
        w = w._replace(rewriter=None)
        if version == w.version or self.mutant == "rewrite without compare-and-set":
            w = w._replace(version=w.version + 1, rows=(*rows, REWRITTEN))
            yield Step(f"compaction: write what was read at version {version}", Kind.WORK, w)
        else:
            yield Step("compaction: superseded", Kind.WORK, w)

    # -- the housekeeper, and time

    def _keep(self, w: World) -> Iterator[Step]:
        for key, lane in enumerate(w.lanes):
            if lane.state is not None and (woken := lanes.recover(lane)) != lane:
                yield Step(f"housekeeper: recover key {key}", Kind.WORK, w._replace(lanes=changed(w.lanes, key, woken)))
            elif lane.state is not None and may(w, "late") and (twice := lanes.recover(lane, late=True)) != lane:
                after = spend(w, "late")._replace(lanes=changed(w.lanes, key, twice))
                yield Step(f"housekeeper: wake key {key} again, whose wake is late", Kind.FAULT, after)
            for job in lane.popped:
                if not any(me.pc == Pc.POPPED and (me.key, me.job) == (key, job) for me in w.workers):
                    back = w._replace(lanes=changed(w.lanes, key, lanes.requeue(lane, job)))
                    yield Step(f"housekeeper: put a wake of key {key} back", Kind.WORK, back)
                elif may(w, "slow"):
                    back = spend(w, "slow")._replace(lanes=changed(w.lanes, key, lanes.requeue(lane, job)))
                    yield Step(f"housekeeper: put back a wake of key {key} whose worker is slow", Kind.FAULT, back)
        if w.keeper:
            key, seq, *rest = w.keeper
            after = w._replace(keeper=(key, *rest) if rest else ())
            after = self._put(after, key, Mail(seq, w.journal[key][seq - 1].event))
            yield Step(f"housekeeper: put seq {seq} of key {key} from the journal", Kind.WORK, after)
        elif self.journaled and self.sweep:
            for key, lane in enumerate(w.lanes):
                waiting = [seq for seq, row in enumerate(w.journal[key], 1) if row.state == PENDING]
                if waiting and lane.state is None:
                    after = w._replace(keeper=(key, *waiting))
                    yield Step(f"housekeeper: key {key} waits in the journal, asleep", Kind.WORK, after)

    def _pass_time(self, w: World) -> Iterator[Step]:
        for key, lane in enumerate(w.lanes):
            state = lane.state
            if state is None or state.until != LIVE:
                continue
            after = w._replace(lanes=changed(w.lanes, key, lanes.expire(lane)))
            if state.token in (NOBODY, DEAD):
                what = "the delay ends" if state.token == NOBODY else "the lease of a dead worker runs out"
                yield Step(f"time: {what}", Kind.WORK, after)
            elif may(w, "expire"):
                me = w.workers[state.token]._replace(fresh=False)
                after = having(spend(after, "expire"), state.token, me)
                yield Step(f"fault: the lease of worker {state.token} runs out while it works", Kind.FAULT, after)

    # -- an operator, and what the housekeeper does for them

    def _pause(self, w: World) -> Iterator[Step]:
        """pauses.py: SQL first, then Redis. Whoever dies in between, a housekeeper takes the step that is left."""
        for key, lane in enumerate(w.lanes):
            if lane.paused != w.held:  # hold.lua; an older version than Redis knows is refused
                after = w._replace(lanes=changed(w.lanes, key, lane._replace(paused=w.held)))
                yield Step(f"key {key} is {'paused' if w.held else 'no longer paused'} in Redis", Kind.WORK, after)
            elif (woken := lanes.unpark(lane)) != lane and self.mutant != "a resume wakes nobody":
                after = w._replace(lanes=changed(w.lanes, key, woken))
                kind = Kind.OTHER if w.held else Kind.WORK  # by somebody who read SQL before it was paused again
                yield Step(f"key {key} is woken after its pause", kind, after)
        if w.held:
            yield Step("operator: resume, in SQL", Kind.WORK, w._replace(held=False))
        elif may(w, "pause"):
            yield Step(
                "fault: an operator pauses everything, in SQL", Kind.FAULT, spend(w, "pause")._replace(held=True)
            )

    # -- what breaks

    def _break(self, w: World) -> Iterator[Step]:
        if may(w, "crash"):
            for i, me in enumerate(w.workers):
                if me.pc != Pc.IDLE:
                    yield Step(f"fault: worker {i} dies", Kind.FAULT, off(spend(w, "crash"), i))
        if may(w, "die"):
            for slot, pc in enumerate(w.receivers):
                if pc > 0:
                    after = spend(w, "die")._replace(receivers=changed(w.receivers, slot, DONE))
                    yield Step(f"fault: receiver {slot} dies between journal and mailbox", Kind.FAULT, after)
        full = any(lane != EMPTY for lane in w.lanes)
        if full and may(w, "flush"):
            yield Step("fault: FLUSHALL", Kind.FAULT, redis_is(spend(w, "flush"), (EMPTY,) * len(w.lanes)))
        if may(w, "failover"):
            if w.stale is None:
                yield Step("fault: the replica falls behind from here on", Kind.FAULT, w._replace(stale=w.lanes))
            elif w.stale != w.lanes:
                after = redis_is(spend(w, "failover"), w.stale)._replace(stale=None)
                yield Step("fault: failover to the stale replica", Kind.FAULT, after)
        if may(w, "tail"):
            for key, lane in enumerate(w.lanes):
                if lane.mail:
                    cut = lane._replace(mail=lane.mail[:-1])
                    after = spend(w, "tail")._replace(lanes=changed(w.lanes, key, cut), lossy=True)
                    yield Step(f"fault: key {key} loses the tail of its mailbox", Kind.FAULT, after)
