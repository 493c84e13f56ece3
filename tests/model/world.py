"""What there is while messages become turns: receivers, SQL, Redis, workers. And the small changes that steps are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model import lane as lanes
from tests.model.explore import changed, quickly_replaced
from tests.model.lane import Lane, Mail

PENDING, ANSWERED, BURIED = 0, 1, 2
REWRITTEN = -1  # in a transcript: here a reset or compaction rewrote what was before


class Pc:
    """Where a worker stands: what it does next. Plain numbers, for they are hashed a million times."""

    IDLE = 0
    POPPED = 1
    LOAD = 2
    GAP = 3  # look the order up in the journal
    BEGIN = 4  # count a further attempt
    RUN = 5  # run the agent and commit
    BURY = 6
    COUNT = 7  # write down a failed attempt
    GIVE_BACK = 8  # release the key, delayed
    ACK = 9
    DROP = 10  # acknowledge mail that had ended before
    LEAVE = 11  # mutants only: idle was decided, and is carried out in a step of its own
    OFFER = 12  # mutants only: something is done before the commit


@quickly_replaced
class Worker(NamedTuple):
    pc: int = Pc.IDLE
    key: int = 0
    job: int = 0  # popped and not started
    head: Mail = Mail(0, 0)  # the mailbox's first, as claimed
    mail: Mail = Mail(0, 0)  # what the journal says is next
    known: tuple[int, ...] = ()  # session version and done_seq, as loaded or as left by our last commit
    attempts: int = 0
    of: int = 0
    begun: bool = True
    failed: int = 0
    turns: int = 0
    forgotten: bool = False  # Redis lost something since the wake was started: perhaps this job
    counted: int = -1  # ghost: the event that this claim counts as an attempt at
    fresh: bool = False  # ghost: Redis said that the key is ours, and the lease has not run out since


OFF = Worker()


@quickly_replaced
class Row(NamedTuple):
    """A journal row; its seq is its place."""

    event: int
    state: int = PENDING
    attempts: int = 0


@quickly_replaced
class World(NamedTuple):
    receivers: tuple[int, ...]  # 0 new, seq once journaled, DONE
    journal: tuple[tuple[Row, ...], ...]
    done: tuple[int, ...]
    version: int
    rows: tuple[int, ...]
    outbox: tuple[int, ...]
    dead: tuple[int, ...]
    lanes: tuple[Lane, ...]
    workers: tuple[Worker, ...]
    keeper: tuple[int, ...]  # key, then the seqs that a sweep still has to put
    rewriter: tuple[int, tuple[int, ...]] | None  # what a reset or compaction has read
    rewrites: int
    stale: tuple[Lane, ...] | None  # what a replica that fell behind holds
    faults: tuple[int, ...]
    tries: tuple[int, ...]  # ghost: attempts begun per event
    lossy: bool  # ghost: Redis lost something
    met: bool = False  # with `joined`: key 1 has resumed the session of key 0, and the session's facts say so
    tickets: tuple[int, ...] = ()  # workers in line for that session; the first has it
    refused: bool = False  # ghost: a commit was refused
    held: bool = False  # SQL has a pause that holds every key


DONE = -1
FAULTS = (
    "crash",
    "die",
    "expire",
    "flush",
    "failover",
    "tail",
    "raise",
    "reply",
    "slow",
    "stop",
    "phantom",
    "unopened",
    "outage",
    "late",
    "pause",
)
_FAULT = {name: i for i, name in enumerate(FAULTS)}


@dataclass(frozen=True)
class Rules:
    """A configuration. Faults are given with how often each may happen; `expire` may be unlimited (-1)."""

    name: str
    key_of: tuple[int, ...]  # the key of each event
    duplicates: tuple[int, ...] = ()  # events that the platform delivers a second time
    workers: int = 2
    journaled: bool = True
    limit: int = 0  # attempts before a dead letter; 0 = not modelled
    killed: int = 1  # times `limit`: attempts that took their worker along before a dead letter
    poison: str = ""  # event 0 ends every run of the agent so: "crash", "raise", or "either"
    turns_per_lease: int = 9
    rewrites: int = 0
    joined: bool = False  # key 1 resumes the session of key 0; from then on turns need the session's lock
    pops: bool = False  # popping and starting a wake as two steps
    sweep: bool = True  # False: while Redis loses nothing, nothing may have to wait for the sweep of the journal
    faults: dict[str, int] = field(default_factory=dict)
    mutant: str = ""

    @property
    def counting(self) -> bool:
        return self.limit > 0 and self.mutant != "attempts counted after the turn"

    @property
    def apart(self) -> bool:
        """Attempts are counted for each message by itself."""
        return self.mutant != "one count of attempts for the whole key"


def having(w: World, i: int, me: Worker, lane: Lane | None = None) -> World:
    workers = changed(w.workers, i, me)
    if lane is None:
        return w._replace(workers=workers)
    return w._replace(workers=workers, lanes=changed(w.lanes, me.key, lane))


def off(w: World, i: int) -> World:
    """Worker i has ended its wake. Whatever still bears its token belongs to nobody."""
    after = w._replace(workers=changed(w.workers, i, OFF), lanes=tuple(lanes.forget(lane, i) for lane in w.lanes))
    if i in w.tickets:
        after = after._replace(tickets=tuple(other for other in w.tickets if other != i))
    if w.stale is not None:
        after = after._replace(stale=tuple(lanes.forget(lane, i) for lane in w.stale))
    return after


def redis_is(w: World, new: tuple[Lane, ...]) -> World:
    """Redis comes back with other contents: nobody's lease is certain any more, and a popped wake may be unknown."""
    workers = []
    for me in w.workers:
        known = me.job in (*new[me.key].wakes, *new[me.key].popped)
        workers.append(me._replace(fresh=False, forgotten=me.pc > Pc.POPPED, job=me.job if known else 0))
    return w._replace(lanes=new, workers=tuple(workers), lossy=True, tickets=())


def may(w: World, fault: str) -> bool:
    return w.faults[_FAULT[fault]] != 0


def spend(w: World, fault: str) -> World:
    i = _FAULT[fault]
    left = w.faults[i]
    return w if left < 0 else w._replace(faults=changed(w.faults, i, left - 1))
