"""One run: a deployment under load while things break, then quiescence, then every check."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.checks import check
from tests.faults.evidence import Evidence, gather, residue, stuck, waiting
from tests.faults.load import Plan, Senders, Sent
from tests.faults.nemesis import ROLES, Nemesis, plan_strikes
from tests.support.cluster import SECRET, Cluster, Process, log_tail, open_cluster, until
from tests.support.platform import Trouble, no_trouble, open_platform

REST_SECONDS = (
    150.0  # how long everything may take to end after the last fault; a slow machine needs it, a stuck key outlasts it
)


@dataclass(frozen=True, slots=True)
class Trial:
    """What to send, what to break, and on what."""

    seed: int
    messages: int
    keys: int
    seconds: float
    zipf: float = 0.0
    receivers: int = 2
    workers: int = 3
    housekeepers: int = 1
    kills: int = 0
    pauses: int = 0
    flushes: int = 0
    restarts: int = 0
    stops: int = 0
    kill_roles: tuple[str, ...] = ROLES
    duplicate_share: float = 0.02
    poison: tuple[str, ...] = ()
    poison_share: float = 0.0
    idempotent: bool = True
    trouble: Trouble = no_trouble
    lease_seconds: float = 2.0
    settings: dict[str, float | str] = field(default_factory=dict)

    def all_settings(self) -> dict[str, float | str]:
        """Short times, so that a fault costs seconds; attempts enough that only poison, not bad luck, uses them up."""
        return {
            "lease_seconds": self.lease_seconds,
            "heartbeat_seconds": self.lease_seconds / 4,
            "sweep_seconds": 1.0,
            "backoff_seconds": 0.1,
            "partitions": 4,
            "concurrency": 32,  # a killed worker takes that many turns with it
            "max_attempts": 3 if self.poison_share else 12,
            "delivery_max_attempts": 30,
            "webhook__callback_timeout_seconds": 5.0,
            **self.settings,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    trial: Trial
    sent: Sent
    evidence: Evidence
    broken: dict[str, list[str]]
    faults: dict[str, int]
    recoveries: list[float]  # seconds from a worker's death to the next commit of each key whose turn it ran
    counters: dict[str, float]
    seconds: float
    stall_seconds: float  # the longest time that this machine did not let us run

    @property
    def holds(self) -> bool:
        return not any(self.broken.values())


async def run_trial(trial: Trial, directory: Path, database_url: str) -> Outcome:
    """Run it to the end. Raises AssertionError, saying what is stuck, when it does not come to rest."""
    async with (
        open_platform(SECRET, idempotent=trial.idempotent, trouble=trial.trouble) as platform,
        open_cluster(directory, database_url, platform.url, **trial.all_settings()) as cluster,
        stall_clock() as stall,
    ):
        await cluster.add("receive", trial.receivers)
        await cluster.add("work", trial.workers)
        await cluster.add("housekeep", trial.housekeepers)
        senders = Senders(cluster.ports(), seed=trial.seed, duplicate_share=trial.duplicate_share)
        strikes = plan_strikes(
            trial.seed,
            trial.seconds,
            lease_seconds=trial.lease_seconds,
            kills=trial.kills,
            pauses=trial.pauses,
            flushes=trial.flushes,
            restarts=trial.restarts,
            stops=trial.stops,
            roles=trial.kill_roles,
        )
        nemesis = Nemesis(cluster, strikes, trial.seed)
        started = time.monotonic()
        sent, _ = await asyncio.gather(senders.post(_plan(trial).make()), nemesis.run())
        await quiescence(cluster, database_url)
        seconds = time.monotonic() - started
        evidence = gather(sent.accepted, database_url, platform, cluster, leases_forgotten=trial.flushes > 0)
        return Outcome(
            trial,
            sent,
            evidence,
            check(evidence),
            dict(sorted(nemesis.done.items())),
            recoveries(cluster, evidence),
            {name: cluster.metric(f"keyturn_{name}_total") for name in COUNTED},
            seconds,
            stall.longest,
        )


COUNTED = (
    "turns",
    "fence_rejected",
    "lease_lost",
    "redelivered",
    "dedup_hit",
    "dead_letter",
    "ambiguous_send",
    "recovered",
)


async def quiescence(cluster: Cluster, database_url: str, seconds: float = REST_SECONDS) -> None:
    """Nothing waits in the journal or the outbox, and Redis has forgotten every key."""
    try:
        await until(lambda: waiting(database_url) == (0, 0), seconds, "nothing pending", every=0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{stuck(database_url, cluster)}\n{log_tail(cluster)}") from None
    with suppress(AssertionError):  # what is still there afterwards is for the checker to name
        await until(lambda: not residue(cluster), 30, "nothing left in Redis", every=0.2)


def recoveries(cluster: Cluster, evidence: Evidence) -> list[float]:
    """For every key whose turn a worker was running when it was killed: how long until its next commit."""
    wall_minus_monotonic = time.time() - time.monotonic()
    commits: dict[str, list[float]] = {}
    for turn in evidence.turns:
        commits.setdefault(turn["session_key"], []).append(turn["committed_at"] / 1000 - wall_minus_monotonic)
    times = []
    for life in (life for life in cluster.lives if life.member.role == "work" and life.status == -9):
        for key in running_when_killed(life, evidence):
            after = [at for at in commits.get(key, []) if at > _end(life)]
            if after:
                times.append(min(after) - _end(life))
    return sorted(times)


def running_when_killed(life: Process, evidence: Evidence) -> set[str]:
    mine = [note for note in evidence.noted if note.pid == life.pid and life.started_at <= note.at <= _end(life)]
    ended = {note.turn for note in mine if note.event != "begin"}
    return {note.key for note in mine if note.event == "begin" and note.turn not in ended}


def _end(life: Process) -> float:
    assert life.ended_at is not None
    return life.ended_at


def _plan(trial: Trial) -> Plan:
    return Plan(
        trial.seed,
        trial.messages,
        trial.keys,
        seconds=trial.seconds,
        zipf=trial.zipf,
        poison=trial.poison,
        poison_share=trial.poison_share,
    )


class Stall:
    """How long the machine kept us waiting at worst: what a bound on time has to be forgiven."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            self.longest = max(self.longest, time.monotonic() - before - 0.05)


@asynccontextmanager
async def stall_clock() -> AsyncIterator[Stall]:
    stall = Stall()
    task = asyncio.create_task(stall.watch())
    try:
        yield stall
    finally:
        task.cancel()
