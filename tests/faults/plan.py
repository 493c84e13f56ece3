"""What goes wrong, and when: decided by the seed before the run begins."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from shared import failpoints
from tests.faults.points import ARMED

ROLES = ("work", "receive", "housekeep")
WEIGHTS = (6, 2, 1)  # workers have the most to lose
STORM_SECONDS = 3.0
BLINK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Faults:
    """How much of what. Times are in seconds, pauses in lease times."""

    kills: int = 0
    pauses: int = 0
    stops: int = 0  # SIGTERM to a worker, which drains and comes back
    roles: tuple[str, ...] = ROLES  # who is killed and paused
    pause_leases: tuple[float, float] = (1.2, 3.0)
    failpoints: int = 0  # each failpoint with each action so many times
    flushes: int = 0
    restarts: int = 0  # of Redis
    tail_cuts: tuple[float, ...] = ()  # how much of Redis' append-only file is gone
    failovers: int = 0  # to a replica that misses the latest writes
    demotions: int = 0  # another server takes over at the same address, and nobody is disconnected
    sentinels: bool = (
        False  # failovers and demotions are up to Sentinels; of other faults of Redis, only flushes are possible
    )
    silences: int = 0  # every connection to Redis falls silent for good; new ones work
    full: tuple[float, ...] = ()  # how long Redis has no memory for anything new
    read_only: tuple[float, ...] = ()  # how long Redis takes no writes
    servers: int = 1  # Redis servers that share the keys
    servers_away: tuple[float, ...] = ()  # how long one of them is gone; not the first, which all the rest happens to
    reshapes: int = 0  # PARTITIONS changes, at first a server is added too; all processes restart one by one
    drain: bool = False  # a server is added, another is drained and taken out; the rest of the servers stays
    network: int = 0  # delays, black holes, half-open connections, cuts
    outages: tuple[float, ...] = ()  # how long the database is away
    blinks: int = 0  # the database is away for a moment only
    read_only_databases: tuple[float, ...] = ()  # how long the database takes no writes
    database_failovers: int = 0  # PostgreSQL's replica takes the place of its primary, which comes back as it was
    pooler: bool = False  # PostgreSQL is reached through a pooler in transaction mode
    locks: tuple[float, ...] = ()  # how long somebody else keeps the rows of many sessions
    providers_away: tuple[float, ...] = ()  # how long the model's provider answers nobody
    full_disks: tuple[float, ...] = ()  # how long nothing can be written
    storms: int = 0  # the platform answers 429 to everything
    clock_steps: int = 0

    @property
    def forget_leases(self) -> bool:
        """Whether Redis itself may forget who holds what."""
        forgets = self.flushes or self.tail_cuts or self.failovers or self.failpoints or self.demotions or self.reshapes
        return bool(forgets or self.drain)


NO_FAULTS = Faults()


@dataclass(frozen=True, slots=True)
class Strike:
    at: float  # seconds after the start
    what: str
    role: str = ""
    seconds: float = 0.0
    point: str = ""
    action: str = ""


def plan_strikes(
    seed: int, seconds: float, faults: Faults, *, lease_seconds: float, quiet: float = 0.0
) -> list[Strike]:
    """Faults spread evenly over the time, in random order, so that there is work under way at each; none in the `quiet` at both ends."""
    rng = random.Random(seed)
    weights = [WEIGHTS[ROLES.index(role)] for role in faults.roles]

    def someone() -> str:
        return rng.choices(faults.roles, weights)[0]

    def a_pause() -> float:
        return rng.uniform(*faults.pause_leases) * lease_seconds

    made: list[Callable[[float], Strike]] = []
    made += [lambda at: Strike(at, "kill", someone())] * faults.kills
    made += [lambda at: Strike(at, "pause", someone(), a_pause())] * faults.pauses
    made += [lambda at: Strike(at, "stop", "work")] * faults.stops
    made += [lambda at: Strike(at, "flush")] * faults.flushes
    made += [lambda at: Strike(at, "restart")] * faults.restarts
    made += [lambda at: Strike(at, "fail over")] * faults.failovers
    made += [lambda at: Strike(at, "demote")] * faults.demotions
    made += [lambda at: Strike(at, "database failover")] * faults.database_failovers
    made += [lambda at: Strike(at, "silence")] * faults.silences
    made += [lambda at: Strike(at, "reshape")] * faults.reshapes
    made += [lambda at, s=s: Strike(at, "full Redis", seconds=s) for s in faults.full]  # type: ignore[misc]
    made += [lambda at, s=s: Strike(at, "read only", seconds=s) for s in faults.read_only]  # type: ignore[misc]
    made += [lambda at, s=s: Strike(at, "server away", seconds=s) for s in faults.servers_away]  # type: ignore[misc]
    made += [lambda at: Strike(at, "network", seconds=rng.uniform(0.5, 3.0) * lease_seconds)] * faults.network
    made += [lambda at: Strike(at, "storm", seconds=STORM_SECONDS)] * faults.storms
    made += [lambda at: Strike(at, "clock", someone())] * faults.clock_steps
    made += [lambda at, s=s: Strike(at, "cut tail", seconds=s) for s in faults.tail_cuts]  # type: ignore[misc]
    made += [lambda at, s=s: Strike(at, "outage", seconds=s) for s in faults.outages]  # type: ignore[misc]
    made += [lambda at: Strike(at, "outage", seconds=BLINK_SECONDS)] * faults.blinks
    for what, lengths in (
        ("read-only database", faults.read_only_databases),
        ("locks", faults.locks),
        ("provider away", faults.providers_away),
        ("full disk", faults.full_disks),
    ):
        made += [lambda at, w=what, s=s: Strike(at, w, seconds=s) for s in lengths]  # type: ignore[misc]
    for point, action in [(p, a) for p in ARMED for a in failpoints.ACTIONS] * faults.failpoints:
        made.append(lambda at, p=point, a=action: Strike(at, "arm", point=p, action=a))  # type: ignore[misc]
    rng.shuffle(made)
    span = seconds - 2 * quiet
    strikes = [make(quiet + (i + rng.uniform(0.3, 1.0)) * span / len(made)) for i, make in enumerate(made)]
    if faults.drain:  # it takes a while: the other faults happen meanwhile
        strikes.insert(0, Strike(quiet, "drain"))
    return strikes
