"""One run: a deployment under load while things break, then quiescence, then every check."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.faults.checks import check
from tests.faults.databases import Disk, Ground, through
from tests.faults.evidence import Evidence, gather, residue, stuck, waiting
from tests.faults.growth import Growth, Slope
from tests.faults.load import Message, Plan, Senders, Sent, flood
from tests.faults.nemesis import Nemesis
from tests.faults.plan import NO_FAULTS, Faults, plan_strikes
from tests.faults.progress import Progress
from tests.faults.recovery import after_child_crashes, after_kills, back_to_speed, throughput
from tests.support.cluster import SECRET, Cluster, log_tail, open_cluster, until
from tests.support.platform import Trouble, no_trouble, open_platform
from tests.support.proxy import Proxy
from tests.support.sentinels import SentinelValkeys
from tests.support.valkeys import Valkeys

# How long nothing may end after the last fault while something waits: a slow machine needs it, a stuck key outlasts it.
REST_SECONDS = 150.0
ROUNDS = 60  # of further load, at most, until every failpoint has been reached


@dataclass(frozen=True, slots=True)
class Trial:
    """What to send, what to break, and on what."""

    seed: int
    messages: int
    keys: int
    seconds: float
    faults: Faults = NO_FAULTS
    quiet_seconds: float = 0.0  # without faults, at the beginning and at the end of the load
    zipf: float = 0.0
    receivers: int = 2
    workers: int = 3
    housekeepers: int = 1
    duplicate_share: float = 0.02
    poison: tuple[str, ...] = ()
    poison_share: float = 0.0
    mishaps: tuple[str, ...] = ()
    mishap_share: float = 0.0
    silent_share: float = 0.03
    tools_share: float = 0.1  # of messages whose turn calls tools
    tools: int = 3  # so many of them
    flood: int = 0  # commands with hostile arguments, beside the messages
    flood_keys: int = 20
    idempotent: bool = True
    trouble: Trouble = no_trouble
    lease_seconds: float = 2.0
    settings: dict[str, float | str] = field(default_factory=dict)
    sleep_ms: int = 20  # a turn takes up to so long
    progress_seconds: float = 120.0  # a key whose servers answer gets on within this time, whatever else happens to it
    sample_seconds: float = 0.0  # between looks at what grows; 0: none

    def all_settings(self) -> dict[str, float | str]:
        """Short times, so that a fault costs seconds; attempts enough that only poison, not bad luck, uses them up."""
        return {
            "lease_seconds": self.lease_seconds,
            "heartbeat_seconds": self.lease_seconds / 4,
            "sweep_seconds": 1.0,
            "result_seconds": 1,  # so that what RQ keeps for a while is gone when the run is looked at
            "backoff_seconds": 0.1,
            "backoff_max_seconds": 5.0,
            "partitions": 4,
            "history_messages": 20,
            "concurrency": 32,  # a killed worker takes that many turns with it
            "max_attempts": 3 if self.poison_share else 25,
            "delivery_max_attempts": 100,
            "turn_timeout_seconds": 3.0 if self.mishaps else 300.0,
            "webhook__callback_timeout_seconds": 5.0,
            **self.settings,
        }

    def load(self) -> dict[str, list[Message]]:
        """What is sent: each chat's messages in order."""
        commands = flood(self.seed, self.flood, self.flood_keys, self.seconds) if self.flood else {}
        return self._plan().make() | commands

    def _plan(self) -> Plan:
        return Plan(
            self.seed,
            self.messages,
            self.keys,
            seconds=self.seconds,
            zipf=self.zipf,
            sleep_ms=self.sleep_ms,
            poison=self.poison,
            poison_share=self.poison_share,
            mishaps=self.mishaps,
            mishap_share=self.mishap_share,
            silent_share=self.silent_share,
            tools_share=self.tools_share,
            tools=self.tools,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """All times are in seconds and sorted."""

    trial: Trial
    database: str
    sent: Sent
    evidence: Evidence
    broken: dict[str, list[str]]
    faults: dict[str, int]
    skipped: dict[str, int]
    fired: list[tuple[str, str]]  # failpoints, each with what it did
    recoveries: list[float]  # from a worker's death to the commit of each message whose turn it ran
    recoveries_once: list[float]  # the same, of those that lost no second worker meanwhile, while the servers answered
    child_recoveries: list[
        float
    ]  # from the death of a turn's own process to the next attempt, while the servers answered
    speed_recoveries: list[float]  # from Redis' return to 90 % of the throughput before
    throughput: tuple[float, float]  # commits per second in the quiet before the faults and after them
    counters: dict[str, float]
    seconds: float
    growth: dict[str, Slope]
    stall_seconds: float  # the longest time that this machine did not let us run

    @property
    def holds(self) -> bool:
        return not any(self.broken.values())


async def run_trial(trial: Trial, directory: Path, ground: Ground, disk: Disk | None = None) -> Outcome:
    """Run it to the end. Raises AssertionError, saying what is stuck, when it does not come to rest."""
    faults = trial.faults
    async with AsyncExitStack() as opened:
        platform = await opened.enter_async_context(
            open_platform(SECRET, idempotent=trial.idempotent, trouble=trial.trouble)
        )
        place = (disk.directory if disk is not None else directory) / "valkey"
        valkeys = SentinelValkeys(place) if faults.sentinels else _valkeys(place, faults)
        lines = {"Redis": valkeys.network}
        callback_url = platform.url
        if faults.network:
            lines["the callback"] = Proxy(urlsplit(platform.url).port or 0)
            await lines["the callback"].open()
            opened.callback(lines["the callback"].close)
            callback_url = through(lines["the callback"], platform.url)
        if ground.network is not None:
            lines["the database"] = ground.network
        settings = trial.all_settings()
        cluster = await opened.enter_async_context(
            open_cluster(directory, ground.url, callback_url, valkeys, **settings)
        )
        stall = await opened.enter_async_context(stall_clock())
        if (faults.reshapes or faults.drain) and faults.servers > 1:  # the last one is listed later
            cluster.change(redis_url=",".join(valkeys.urls[:-1]))
        growth = Growth(cluster, ground.straight_url, trial.sample_seconds)
        progress = Progress(ground.straight_url)
        watching = asyncio.create_task(progress.watch())
        opened.callback(watching.cancel)
        if trial.sample_seconds:
            sampling = asyncio.create_task(growth.watch())
            opened.callback(sampling.cancel)
        await cluster.add("receive", trial.receivers)
        await cluster.add("work", trial.workers)
        await cluster.add("housekeep", trial.housekeepers)
        senders = Senders(cluster.ports(), seed=trial.seed, duplicate_share=trial.duplicate_share)
        strikes = plan_strikes(
            trial.seed, trial.seconds, faults, lease_seconds=trial.lease_seconds, quiet=trial.quiet_seconds
        )
        shortest, longest = faults.pause_leases
        pause_seconds = (shortest * trial.lease_seconds, longest * trial.lease_seconds)
        nemesis = Nemesis(cluster, platform, ground, disk, strikes, lines, pause_seconds, trial.seed)
        growth.epoch = lambda: nemesis.done["FLUSHALL"] + len(nemesis.redis_away)
        started = time.monotonic()
        sent, _ = await asyncio.gather(senders.post(trial.load()), nemesis.run())
        load_ended = time.monotonic()
        await _reach_the_rest(nemesis, senders, trial.seed)
        await quiescence(cluster, ground.straight_url)
        seconds = time.monotonic() - started
        quiet = trial.quiet_seconds
        away = [*nemesis.away, *nemesis.redis_away]
        evidence = gather(
            sent.accepted,
            ground.straight_url,
            platform,
            cluster,
            leases_forgotten=faults.forget_leases,
            away=[*away, *nemesis.platform_away],
            stood_still=progress.longer_than(trial.progress_seconds + stall.longest, away, trial.seconds),
        )
        every, once = after_kills(cluster, evidence, away)
        return Outcome(
            trial=trial,
            database=ground.kind,
            sent=sent,
            evidence=evidence,
            broken=check(evidence),
            faults=dict(sorted(nemesis.done.items())),
            skipped=dict(nemesis.skipped),
            fired=nemesis.fired(),
            recoveries=every,
            recoveries_once=once,
            child_recoveries=after_child_crashes(evidence, away),
            speed_recoveries=back_to_speed(evidence, nemesis.redis_away, load_ended),
            throughput=(
                throughput(evidence, started + quiet / 4, started + quiet),
                throughput(evidence, started + trial.seconds - quiet * 3 / 4, started + trial.seconds),
            )
            if quiet
            else (0.0, 0.0),
            counters={name: cluster.metric(f"keyturn_{name}_total") for name in COUNTED},
            seconds=seconds,
            growth=growth.slopes(),
            stall_seconds=stall.longest,
        )


def _valkeys(place: Path, faults: Faults) -> Valkeys:
    return Valkeys(
        place,
        proxied=faults.network + faults.silences > 0,
        replicated=faults.failovers + faults.demotions > 0,
        beside=faults.servers - 1,
    )


async def _reach_the_rest(nemesis: Nemesis, senders: Senders, seed: int) -> None:
    """Go on sending, a little at a time, until every failpoint that is armed has gone off."""
    for number in range(ROUNDS):
        if not nemesis.unfired():
            return
        more = Plan(seed + number, 60, 60, seconds=1.0, names=f"more{number}-", mishaps=("raise=1",), mishap_share=0.2)
        await senders.post(more.make())
        await nemesis.provoke()
        with suppress(AssertionError):
            await until(lambda: not nemesis.unfired(), 3, "every failpoint has gone off")
    raise AssertionError(f"nobody reached {sorted(nemesis.unfired())}")


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
    """Nothing waits in the journal or the outbox, and Redis has forgotten every key. Raises AssertionError when so many seconds
    have passed in which nothing ended; however many hot keys have to be worked off, time is not what fails."""
    left, since = waiting(database_url), time.monotonic()
    while left != (0, 0):
        if time.monotonic() - since > seconds:
            said = f"nothing ended for {seconds:.0f} s, and {left[0]} messages and {left[1]} replies wait"
            raise AssertionError(f"{said}\n{stuck(database_url, cluster)}\n{log_tail(cluster)}")
        await asyncio.sleep(0.2)
        if (now := waiting(database_url)) != left:
            left, since = now, time.monotonic()
    with suppress(AssertionError):  # what is still there afterwards is for the checker to name
        await until(lambda: not residue(cluster), 30, "nothing left in Redis", every=0.2)


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
