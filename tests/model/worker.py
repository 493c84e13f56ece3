"""A worker between a wake and its end: wakes.py, turn/open.py, turn/take.py and the commit, a step per round trip."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import lane as lanes
from tests.model.explore import Kind, Step, changed
from tests.model.lane import DEAD, Mail
from tests.model.world import ANSWERED, BURIED, PENDING, Pc, Row, Rules, Worker, World, having, may, off, spend


class TurnWorker:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def steps(self, w: World, i: int) -> Iterator[Step]:
        """What worker i may do next."""
        me = w.workers[i]
        name = f"worker {i}"
        match me.pc:
            case Pc.IDLE:
                for key, lane in enumerate(w.lanes):
                    if not lane.wakes:
                        continue
                    job = lane.wakes[0]
                    popped = w._replace(lanes=changed(w.lanes, key, lanes.pop(lane)))
                    popped = having(popped, i, Worker(Pc.POPPED, key, job))
                    if self.rules.pops:
                        yield Step(f"{name}: pop the wake of key {key}", Kind.WORK, popped)
                    else:
                        yield self._start(popped, i)
            case Pc.POPPED:
                yield self._start(w, i)
            case Pc.LOAD if self.rules.joined and me.key == 1 and not w.met:
                yield Step(f"{name}: key 1 resumes the session of key 0", Kind.WORK, w._replace(met=True))
            case Pc.LOAD if self.rules.joined and w.met and self.rules.mutant != "no session lock":
                if i not in w.tickets:
                    yield Step(f"{name}: take a ticket", Kind.WORK, w._replace(tickets=(*w.tickets, i)))
                elif w.tickets[0] == i and not self._unaware(w, me.key):
                    yield self._load(w, i)
            case Pc.LOAD:
                yield self._load(w, i)
                if may(w, "unopened"):
                    yield self._not_opened(spend(w, "unopened"), i)
            case Pc.GAP:
                rows = [Mail(n, row.event) for n, row in enumerate(w.journal[me.key], 1) if row.state == PENDING]
                assert me.known
                rows = [mail for mail in rows if mail.seq > me.known[1]]
                if not rows or rows[0].seq > me.head.seq:
                    after = having(w, i, me._replace(pc=Pc.DROP))
                else:
                    failed = w.journal[me.key][rows[0].seq - 1].attempts
                    after = self._ready(w, i, me._replace(mail=rows[0], failed=failed))
                yield Step(f"{name}: look in the journal for what is next", Kind.WORK, after)
            case Pc.BEGIN:
                counted = lanes.attempt(w.lanes[me.key], i, me.mail.seq if self.rules.apart else 0)
                if counted is None:
                    yield Step(f"{name}: count an attempt: the key is another's", Kind.WORK, off(w, i))
                else:
                    me = me._replace(pc=Pc.RUN, begun=True, attempts=me.attempts + 1)
                    yield Step(f"{name}: count an attempt at m{me.mail.event}", Kind.WORK, having(w, i, me, counted))
            case Pc.RUN | Pc.OFFER:
                yield from self._run(w, i)
            case Pc.BURY:
                yield self._commit(w, i, BURIED)
            case Pc.COUNT:
                row = w.journal[me.key][me.mail.seq - 1]
                if row.state == PENDING:
                    journal = changed(
                        w.journal[me.key], me.mail.seq - 1, row._replace(attempts=self._begun_before(me) + 1)
                    )
                    w = w._replace(journal=changed(w.journal, me.key, journal))
                after = having(w, i, me._replace(pc=Pc.GIVE_BACK))
                yield Step(f"{name}: write down the failed attempt", Kind.WORK, after)
            case Pc.GIVE_BACK:
                lane = w.lanes[me.key]
                if self.rules.mutant == "attempts counted after the turn":
                    lane = lanes.attempt(lane, i, 0) or lane
                lane = lanes.release(lane, i, delayed=True, spent=True)
                yield Step(f"{name}: give the key back, delayed", Kind.WORK, off(having(w, i, me, lane), i))
            case Pc.ACK | Pc.DROP:
                yield from self._acknowledge(w, i)
            case Pc.LEAVE:
                lane = w.lanes[me.key]
                if self.rules.mutant == "idle in two steps" and lanes.holds(lane, i):
                    lane = lane._replace(state=None)
                yield Step(f"{name}: leave the key, as decided", Kind.WORK, off(having(w, i, me, lane), i))
        if me.pc not in (Pc.IDLE, Pc.POPPED, Pc.LEAVE):
            yield from self._renew(w, i)

    def _unaware(self, w: World, key: int) -> bool:
        """unaware.lua: another key is held by somebody who stands in no line: he may have loaded before the keys met."""
        if self.rules.mutant == "no look for leases from before":
            return False
        return any(
            lanes.holds(lane, j) and j not in w.tickets
            for other, lane in enumerate(w.lanes)
            for j in range(len(w.workers))
            if other != key
        )

    def _start(self, w: World, i: int) -> Step:
        me = w.workers[i]
        label = f"worker {i}: start the wake of key {me.key}"
        if me.job == 0:
            return Step(label + ": the job is gone", Kind.WORK, off(w, i))
        lane, ours = lanes.start(w.lanes[me.key], me.job, i, counting=self.rules.counting, apart=self.rules.apart)
        if not ours:
            what = "held by another" if lane.state is not None else "nothing to do"
            return Step(f"{label}: {what}", Kind.WORK, off(having(w, i, me, lane), i))
        assert lane.state is not None
        before = w.lanes[me.key].state
        begun = before is None or (before.attempts, before.of) != (lane.state.attempts, lane.state.of)
        me = Worker(Pc.LOAD, me.key, head=lane.mail[0], fresh=True)
        if self.rules.counting:
            me = me._replace(attempts=lane.state.attempts, of=lane.state.of, begun=begun)
        return Step(f"{label}: leased, with seq {lane.mail[0].seq}", Kind.WORK, self._count(having(w, i, me, lane), i))

    def _count(self, w: World, i: int, event: int = -1) -> World:
        """Ghost: this claim is an attempt at the first message that waits, or at the one that it comes to."""
        me = w.workers[i]
        if not self.rules.limit:
            return w
        if event < 0:
            waits = (
                [row.event for row in w.journal[me.key] if row.state == PENDING]
                if self.rules.journaled
                else [me.head.event]
            )
            event = waits[0] if waits else me.head.event
        if me.counted == event:
            return w
        tries = changed(w.tries, event, min(w.tries[event] + 1, self.rules.limit))
        return having(w._replace(tries=tries), i, me._replace(counted=event))

    def _load(self, w: World, i: int) -> Step:
        me = w.workers[i]
        label = f"worker {i}: load: version {w.version}, done up to {w.done[me.key]}"
        me = me._replace(known=(w.version, w.done[me.key]))
        standing = [row for row in w.journal[me.key] if row.event == me.head.event]
        failed = standing[0].attempts if standing else 0
        if standing and standing[0].state != PENDING and self.rules.mutant != "no unique event id":
            return Step(label, Kind.WORK, having(w, i, me._replace(pc=Pc.DROP)))
        return Step(label, Kind.WORK, self._open(w, i, me, failed))

    def _open(self, w: World, i: int, me: Worker, failed: int = 0) -> World:
        """opening.py, as far as it needs no query."""
        assert me.known
        done = me.known[1]
        if self.rules.journaled:
            if me.head.seq <= done:
                return having(w, i, me._replace(pc=Pc.DROP))
            if me.head.seq > done + 1 and self.rules.mutant != "no gap check":
                return having(w, i, me._replace(pc=Pc.GAP))
        return self._ready(w, i, me._replace(mail=me.head, failed=failed))

    def _not_opened(self, w: World, i: int) -> Step:
        """turn.py, not_opened: a failure before an attempt is begun counts. What is set aside is what the journal has next."""
        me = w.workers[i]
        label = f"worker {i}: the head of key {me.key} cannot be opened"
        if me.attempts - me.begun + 1 < self.rules.limit:
            lane = lanes.release(w.lanes[me.key], i, delayed=True, spent=True, begun=me.begun)
            return Step(label, Kind.FAULT, off(having(w, i, me, lane), i))
        waits = [Mail(n, row.event) for n, row in enumerate(w.journal[me.key], 1) if row.state == PENDING]
        known = (w.version, w.done[me.key])
        if not waits or waits[0].seq > me.head.seq:
            return Step(label, Kind.FAULT, having(w, i, me._replace(pc=Pc.DROP, known=known)))
        if waits[0] != me.head:  # the attempts were counted for the mail behind it
            lane = lanes.release(lanes.put(w.lanes[me.key], waits[0]), i, delayed=True, spent=True, begun=me.begun)
            return Step(f"{label}, m{waits[0].event} comes first", Kind.FAULT, off(having(w, i, me, lane), i))
        return Step(label, Kind.FAULT, having(w, i, me._replace(pc=Pc.BURY, mail=waits[0], known=known)))

    def _begun_before(self, me: Worker) -> int:
        in_redis = me.attempts - me.begun if me.of == (me.mail.seq if self.rules.apart else 0) else 0
        return max(in_redis, me.failed)

    def _ready(self, w: World, i: int, me: Worker) -> World:
        if not self.rules.limit:
            return having(w, i, me._replace(pc=Pc.RUN))
        if self._begun_before(me) >= self.rules.limit * self.rules.killed:
            return having(w, i, me._replace(pc=Pc.BURY))
        of = me.mail.seq if self.rules.apart else 0
        if me.of != of:
            me = me._replace(of=of, attempts=0, begun=False)
        pc = Pc.RUN if me.begun or not self.rules.counting else Pc.BEGIN
        return self._count(having(w, i, me._replace(pc=pc)), i, me.mail.event)

    def _run(self, w: World, i: int) -> Iterator[Step]:
        me = w.workers[i]
        if self.rules.poison and me.mail.event == 0:
            if self.rules.poison != "raise":
                yield Step(f"worker {i}: m0 brings the worker down", Kind.WORK, off(w, i))
            if self.rules.poison != "crash":
                yield self._failed(w, i, Kind.WORK)
            return
        if me.pc == Pc.RUN and self.rules.mutant == "acknowledge before commit":
            lane = w.lanes[me.key]
            if lanes.holds(lane, i):
                lane = lanes.drop(lane, (me.mail.seq,))
            after = having(w, i, me._replace(pc=Pc.OFFER), lane)
            yield Step(f"worker {i}: drop m{me.mail.event} from the mailbox", Kind.WORK, after)
            return
        if me.pc == Pc.RUN and self.rules.mutant == "outbox row before commit":
            after = having(w._replace(outbox=(*w.outbox, me.mail.event)), i, me._replace(pc=Pc.OFFER))
            yield Step(f"worker {i}: put the reply to m{me.mail.event} out", Kind.WORK, after)
            return
        yield self._commit(w, i, ANSWERED)
        if may(w, "reply"):
            after = self._commit(spend(w, "reply"), i, ANSWERED).after
            if after.version > w.version:  # the retry finds its own rows: AlreadyDone
                me = after.workers[i]._replace(pc=Pc.LOAD, known=())
                if self.rules.mutant == "known mail acknowledged by its head":
                    me = me._replace(pc=Pc.DROP)
                yield Step(
                    f"worker {i}: commit m{me.mail.event}, hear nothing, try again", Kind.FAULT, having(after, i, me)
                )
        if may(w, "raise"):
            yield self._failed(spend(w, "raise"), i, Kind.FAULT)
        if may(w, "outage"):
            lane = lanes.release(w.lanes[me.key], i, delayed=True, spent=False)
            tries = changed(w.tries, me.mail.event, max(0, w.tries[me.mail.event] - 1))
            after = off(having(spend(w, "outage")._replace(tries=tries), i, me, lane), i)
            yield Step(f"worker {i}: the provider is away, m{me.mail.event} waits", Kind.FAULT, after)
        if may(w, "stop"):
            lane = lanes.release(w.lanes[me.key], i, delayed=False, spent=False)
            after = off(having(spend(w, "stop"), i, me, lane), i)
            yield Step(f"worker {i}: told to stop, hands the key back", Kind.FAULT, after)

    def _failed(self, w: World, i: int, kind: Kind) -> Step:
        me = w.workers[i]
        label = f"worker {i}: the agent fails on m{me.mail.event}"
        if self.rules.limit and self._begun_before(me) + 1 >= self.rules.limit:
            return Step(label, kind, having(w, i, me._replace(pc=Pc.BURY)))
        return Step(label, kind, having(w, i, me._replace(pc=Pc.COUNT if self.rules.journaled else Pc.GIVE_BACK)))

    def _commit(self, w: World, i: int, ending: int) -> Step:
        """transcript.commit: all of it, or none."""
        me = w.workers[i]
        event, seq = me.mail.event, me.mail.seq
        assert me.known
        label = f"worker {i}: {'commit' if ending == ANSWERED else 'bury'} m{event} on version {me.known[0]}"
        if w.version != me.known[0] and self.rules.mutant != "no version check":
            if self.rules.joined:
                w = w._replace(refused=True)
            return Step(label + ": superseded", Kind.WORK, having(w, i, me._replace(pc=Pc.LOAD, known=())))
        journal = w.journal[me.key]
        if self.rules.journaled:
            journal = changed(journal, seq - 1, journal[seq - 1]._replace(state=ending))
        elif any(row.event == event for row in journal):
            return Step(label + ": done before", Kind.WORK, having(w, i, me._replace(pc=Pc.LOAD, known=())))
        else:
            journal = (*journal, Row(event, ending))
        done = max(w.done[me.key], seq) if self.rules.journaled else 0
        outbox = (
            w.outbox if self.rules.mutant == "outbox row before commit" and ending == ANSWERED else (*w.outbox, event)
        )
        w = w._replace(
            version=w.version + 1,
            journal=changed(w.journal, me.key, journal),
            done=changed(w.done, me.key, done),
            rows=(*w.rows, event) if ending == ANSWERED else w.rows,
            dead=(*w.dead, event) if ending == BURIED else w.dead,
            outbox=outbox,
        )
        me = me._replace(pc=Pc.ACK, known=(me.known[0] + 1, max(me.known[1], done)), turns=me.turns + 1)
        return Step(label, Kind.WORK, having(w, i, me))

    def _acknowledge(self, w: World, i: int) -> Iterator[Step]:
        me = w.workers[i]
        seq = (me.mail if me.pc == Pc.ACK else me.head).seq
        label = f"worker {i}: acknowledge seq {seq}"
        lane = w.lanes[me.key]
        if not lanes.holds(lane, i) and self.rules.mutant != "acknowledge without token check":
            yield Step(label + ": the key is another's", Kind.WORK, off(w, i))
            return
        kept = lanes.drop(lane, (seq,), by_count=self.rules.mutant == "acknowledge by count")
        if not kept.mail and self.rules.mutant == "idle in two steps":
            yield Step(label + ": nothing waits", Kind.WORK, having(w, i, me._replace(pc=Pc.LEAVE), kept))
            return
        over = me.turns >= self.rules.turns_per_lease and me.pc == Pc.ACK
        lane, goes_on = lanes.go_on(kept, counting=self.rules.counting, apart=self.rules.apart, hand_over=over)
        if not goes_on:
            what = "handed over" if lane.state is not None else "idle"
            after = having(w, i, me, lane)
            if self.rules.mutant == "wake dedupe by RQ state":
                yield Step(f"{label}: {what}", Kind.WORK, having(after, i, Worker(Pc.LEAVE, me.key)))
                return
            yield Step(f"{label}: {what}", Kind.WORK, off(after, i))
            if lane.state is None and may(w, "phantom"):
                lane = lanes.renew(lane, DEAD, forgotten=True) or lane
                after = off(having(spend(w, "phantom"), i, me, lane), i)
                yield Step(f"{label}: idle, but a renewal under way takes the key again", Kind.FAULT, after)
            return
        me = me._replace(head=kept.mail[0], failed=0, counted=-1, fresh=True)
        if self.rules.counting:
            me = me._replace(attempts=1, of=kept.mail[0].seq if self.rules.apart else 0, begun=True)
        after = self._count(having(w, i, me, lane), i)
        me = after.workers[i]
        after = self._open(after, i, me) if me.known else having(after, i, me._replace(pc=Pc.LOAD))
        yield Step(f"{label}: go on with seq {kept.mail[0].seq}", Kind.WORK, after)

    def _renew(self, w: World, i: int) -> Iterator[Step]:
        me, lane = w.workers[i], w.lanes[w.workers[i].key]
        renewed = lanes.renew(lane, i, forgotten=me.forgotten)
        if renewed is None or (me.forgotten and lane.state is None):
            yield Step(f"worker {i}: renew: the key is another's, stop", Kind.OTHER, off(w, i))
        if renewed is not None and renewed != lane:
            yield Step(f"worker {i}: renew the lease", Kind.OTHER, having(w, i, me._replace(fresh=True), renewed))
