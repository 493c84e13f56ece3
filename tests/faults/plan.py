"""What goes wrong, and when: decided by the seed before the run begins."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from shared import failpoints
from tests.faults.points import POINTS

ROLES = ("work", "receive", "housekeep")
WEIGHTS = (6, 2, 1)  # workers have the most to lose
STORM_SECONDS = 3.0


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
    network: int = 0  # delays, black holes, half-open connections, cuts
    outages: tuple[float, ...] = ()  # how long the database is away
    full_disks: tuple[float, ...] = ()  # how long nothing can be written
    storms: int = 0  # the platform answers 429 to everything
    clock_steps: int = 0

    @property
    def forget_leases(self) -> bool:
        """Whether Redis itself may forget who holds what."""
        return bool(self.flushes or self.tail_cuts or self.failovers or self.failpoints)


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
    made += [lambda at: Strike(at, "network", seconds=rng.uniform(0.5, 3.0) * lease_seconds)] * faults.network
    made += [lambda at: Strike(at, "storm", seconds=STORM_SECONDS)] * faults.storms
    made += [lambda at: Strike(at, "clock", someone())] * faults.clock_steps
    made += [lambda at, s=s: Strike(at, "cut tail", seconds=s) for s in faults.tail_cuts]  # type: ignore[misc]
    made += [lambda at, s=s: Strike(at, "outage", seconds=s) for s in faults.outages]  # type: ignore[misc]
    made += [lambda at, s=s: Strike(at, "full disk", seconds=s) for s in faults.full_disks]  # type: ignore[misc]
    for point, action in [(p, a) for p in POINTS for a in failpoints.ACTIONS] * faults.failpoints:
        made.append(lambda at, p=point, a=action: Strike(at, "arm", point=p, action=a))  # type: ignore[misc]
    rng.shuffle(made)
    span = seconds - 2 * quiet
    return [make(quiet + (i + rng.uniform(0.3, 1.0)) * span / len(made)) for i, make in enumerate(made)]
