"""What goes wrong, and when: decided by the seed before the run begins, carried out as the deployment then stands."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field

from tests.support.cluster import Cluster, Member, Process

ROLES = ("work", "receive", "housekeep")
WEIGHTS = (6, 2, 1)  # workers have the most to lose


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: kill, pause, flush, restart (of Redis) or stop (of a worker, which drains and comes back)."""

    at: float  # seconds after the start
    what: str
    role: str = ""
    seconds: float = 0.0  # how long a pause lasts


def plan_strikes(
    seed: int,
    seconds: float,
    *,
    lease_seconds: float = 2.0,
    kills: int = 0,
    pauses: int = 0,
    flushes: int = 0,
    restarts: int = 0,
    stops: int = 0,
    roles: Sequence[str] = ROLES,
) -> list[Strike]:
    """Faults spread evenly over the time, in random order, so that there is work under way at each of them."""
    rng = random.Random(seed)
    weights = [WEIGHTS[ROLES.index(role)] for role in roles]
    whats = ["kill"] * kills + ["pause"] * pauses + ["flush"] * flushes + ["restart"] * restarts + ["stop"] * stops
    rng.shuffle(whats)
    strikes = []
    for i, what in enumerate(whats):
        at = (i + rng.uniform(0.3, 1.0)) * seconds / len(whats)
        role = rng.choices(roles, weights)[0] if what in ("kill", "pause") else "work" if what == "stop" else ""
        strikes.append(Strike(at, what, role, rng.uniform(1.2, 3.0) * lease_seconds if what == "pause" else 0.0))
    return strikes


@dataclass(slots=True)
class Nemesis:
    cluster: Cluster
    strikes: Sequence[Strike]
    seed: int = 0
    done: Counter[str] = field(default_factory=Counter)
    _later: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Carry out every strike; returns when the last pause has ended."""
        rng = random.Random(self.seed)
        start = time.monotonic()
        for strike in self.strikes:
            await asyncio.sleep(max(0.0, start + strike.at - time.monotonic()))
            await self._carry_out(strike, rng)
        while self._later:
            await asyncio.gather(*self._later)

    async def _carry_out(self, strike: Strike, rng: random.Random) -> None:
        if strike.what == "flush":
            await asyncio.to_thread(self.cluster.flush_redis)
            self.done["FLUSHALL"] += 1
            return
        if strike.what == "restart":
            self.cluster.restart_redis()
            self.done["Redis restart"] += 1
            return
        while not (standing := self.cluster.of(strike.role)):  # all of them are down or paused at the moment
            await asyncio.sleep(0.02)
        member = rng.choice(standing)
        if strike.what == "kill":
            self.cluster.kill(member)
            self.done[f"SIGKILL {member.role}"] += 1
        elif strike.what == "pause":
            process = self.cluster.pause(member)
            self.done[f"SIGSTOP {member.role}"] += 1
            self._soon(self._resume(process, strike.seconds))
        else:
            self.done["SIGTERM work"] += 1
            self._soon(self._stop_and_start(member, rng.uniform(0.0, 1.0)))

    async def _resume(self, process: Process, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.cluster.resume(process)

    async def _stop_and_start(self, member: Member, seconds: float) -> None:
        await self.cluster.stop(member)
        await asyncio.sleep(seconds)
        await self.cluster.start(member)

    def _soon(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)
