"""Carries out what the plan says, as the deployment then stands."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from dataclasses import dataclass, field

import orjson

from shared import failpoints
from tests.faults.databases import Disk, Ground, PostgresGround
from tests.faults.plan import Strike
from tests.faults.replicated import ReplicatedGround
from tests.support.cluster import Cluster, Member, Process
from tests.support.platform import Platform
from tests.support.proxy import Proxy, Way
from tests.support.scripted import provider_away

CLOCK_ERRORS = {"work": 3600.0, "housekeep": 3600.0, "receive": 200.0}  # a receiver further off would refuse signatures


@dataclass(slots=True)
class Nemesis:
    cluster: Cluster
    platform: Platform
    ground: Ground
    disk: Disk | None
    strikes: Sequence[Strike]
    lines: Mapping[str, Proxy]  # the network, by what is at its other end
    pause_seconds: tuple[float, float]  # of a process that a failpoint stopped
    seed: int
    done: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)  # what this machine does not permit
    redis_away: list[tuple[float, float]] = field(default_factory=list)  # when it went, when it answered again
    away: list[tuple[float, float]] = field(default_factory=list)  # when Redis or the database could not be reached
    platform_away: list[tuple[float, float]] = field(default_factory=list)  # when replies could not arrive
    _later: set[asyncio.Task[None]] = field(default_factory=set)
    _failures: list[BaseException] = field(default_factory=list)
    _armed: Counter[tuple[str, str]] = field(default_factory=Counter)
    _troubled: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))  # one fault per line
    _rng: random.Random = field(init=False)
    _database: asyncio.Lock = field(default_factory=asyncio.Lock)
    _provider: asyncio.Lock = field(default_factory=asyncio.Lock)
    _refusing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _reshaping: asyncio.Lock = field(default_factory=asyncio.Lock)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self.cluster.on_stopped = self._stopped

    async def run(self) -> None:
        """Carry out every strike; returns when the last of them is over."""
        start = time.monotonic()
        for strike in self.strikes:
            await asyncio.sleep(max(0.0, start + strike.at - time.monotonic()))
            await _ACTS[strike.what](self, strike)
        while self._later:
            await asyncio.wait(self._later)
        for failure in self._failures:
            raise failure

    def unfired(self) -> Counter[tuple[str, str]]:
        """Failpoints that are armed and that nobody has reached since."""
        return self._armed - Counter(self.fired())

    def fired(self) -> list[tuple[str, str]]:
        return [(point, action) for point, action, _ in failpoints.fired(self.cluster.failpoints)]

    async def provoke(self) -> None:
        """Bring about what the rarer failpoints wait for: a Redis that forgot, a wake that nobody started, a failed turn."""
        await self.cluster.valkeys.flush()
        self.done["FLUSHALL"] += 1
        if any(point == "housekeep.before_requeue" for point, _ in self.unfired()):
            self._arm("start.before_claim", failpoints.RAISE)

    # -- processes

    async def _kill(self, strike: Strike) -> None:
        await self._hit(strike.role, self.cluster.kill)
        self.done[f"SIGKILL {strike.role}"] += 1

    async def _pause(self, strike: Strike) -> None:
        process = await self._hit(strike.role, self.cluster.pause)
        self.done[f"SIGSTOP {strike.role}"] += 1
        self._soon(self._resume(process, self._length(process, strike.seconds)))

    async def _stop(self, strike: Strike) -> None:
        self.done[f"SIGTERM {strike.role}"] += 1
        self._soon(self._stop_and_start(await self._somebody(strike.role), self._rng.uniform(0.0, 1.0)))

    async def _step_clock(self, strike: Strike) -> None:
        most = CLOCK_ERRORS[strike.role]
        self.cluster.set_clock(await self._somebody(strike.role), self._rng.uniform(-most, most))
        self.done[f"clock step {strike.role}"] += 1

    async def _arm_point(self, strike: Strike) -> None:
        self._arm(strike.point, strike.action)

    def _arm(self, point: str, action: str) -> None:
        self._armed[point, action] += 1
        failpoints.arm(self.cluster.failpoints, point, action, number=self._armed.total())

    def _stopped(self, process: Process) -> None:
        self._soon(self._resume(process, self._length(process, self._rng.uniform(*self.pause_seconds))))

    def _length(self, process: Process, seconds: float) -> float:
        """How long a pause lasts: not for long where nobody of the role is left, or nothing at all would be tested."""
        return seconds if self.cluster.of(process.member.role) else self.pause_seconds[0]

    async def _somebody(self, role: str) -> Member:
        while not (standing := self.cluster.of(role)):  # all of them are down or paused at the moment
            await asyncio.sleep(0.02)
        return self._rng.choice(standing)

    async def _hit(self, role: str, signal: Callable[[Member], Process]) -> Process:
        while True:
            with suppress(ProcessLookupError):  # it has just died of something else
                return signal(await self._somebody(role))
            await asyncio.sleep(0.02)

    async def _resume(self, process: Process, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.cluster.resume(process)

    async def _stop_and_start(self, member: Member, seconds: float) -> None:
        await self.cluster.stop(member)
        await asyncio.sleep(seconds)
        await self.cluster.start(member)

    # -- servers and what is between

    async def _flush(self, _: Strike) -> None:
        async def flush() -> None:
            await self.cluster.valkeys.flush()
            self.done["FLUSHALL"] += 1

        self._soon(flush())

    async def _restart(self, _: Strike) -> None:
        async def restart() -> None:
            self.redis_away.append(await self.cluster.valkeys.restart())
            self.done["Redis restart"] += 1

        self._soon(restart())

    async def _cut_tail(self, strike: Strike) -> None:
        async def cut() -> None:
            went, back, lost = await self.cluster.valkeys.cut_tail(strike.seconds)
            self.redis_away.append((went, back))
            self.done[f"append-only file cut by {strike.seconds:g} s"] += 1
            self.done["bytes so cut"] += lost

        self._soon(cut())

    async def _fail_over(self, _: Strike) -> None:
        async def fail_over() -> None:
            went, back, lost = await self.cluster.valkeys.fail_over()
            self.redis_away.append((went, back))
            self.done[self.cluster.valkeys.failover] += 1
            if lost:
                self.done["writes so lost"] += lost

        self._soon(fail_over())

    async def _demote(self, _: Strike) -> None:
        async def demote() -> None:
            await self.cluster.valkeys.demote()
            self.done["primary demoted without a cut"] += 1

        self._soon(demote())

    async def _silence(self, _: Strike) -> None:
        self.lines["Redis"].mute()
        self.done["connections to Redis silent for good"] += 1

    async def _fill_redis(self, strike: Strike) -> None:
        self._soon(self._refuse(self.cluster.valkeys.full, "Redis full", strike.seconds))

    async def _forbid_writes(self, strike: Strike) -> None:
        self._soon(self._refuse(self.cluster.valkeys.read_only, "Redis read-only", strike.seconds))

    async def _refuse(self, refusing: Callable[[], AbstractContextManager[None]], what: str, seconds: float) -> None:
        async with self._refusing:
            went = time.monotonic()
            with refusing():
                await asyncio.sleep(seconds)
            self.away.append((went, time.monotonic()))
            self.done[f"{what} for {seconds:g} s"] += 1

    async def _server_away(self, strike: Strike) -> None:
        async def away() -> None:
            self.away.append(await self.cluster.valkeys.one_away(self._rng.randrange(100), strike.seconds))
            self.done[f"one Redis server of several away for {strike.seconds:g} s"] += 1

        self._soon(away())

    async def _reshape(self, _: Strike) -> None:
        self._soon(self._reshaped(self._rng.choice((2, 3, 5, 8))))

    async def _reshaped(self, partitions: int) -> None:
        """Every process is told to end and starts again with the new settings, one after the other, as a deploy does."""
        async with self._reshaping:
            self.cluster.change(partitions=partitions, redis_url=self.cluster.valkeys.url)
            await self._restart_all()
            self.done["PARTITIONS or the list of Redis servers changed"] += 1

    async def _restart_all(self) -> None:
        changed = time.monotonic()
        for member in self.cluster.members:
            while (process := member.running) is None or process.started_at < changed:
                if member in self.cluster.of(member.role):
                    await self.cluster.stop(member)
                    await self.cluster.start(member)
                else:  # it is down or paused at the moment
                    await asyncio.sleep(0.05)

    async def _drain(self, _: Strike) -> None:
        self._soon(self._added_and_drained())

    async def _added_and_drained(self) -> None:
        """As an operator does it: list one server more, drain another, wait until it is empty, take it out of the list."""
        urls, cluster = self.cluster.valkeys.urls, self.cluster
        leaving = urls[1]
        name = leaving.removeprefix("redis://")
        async with self._reshaping:
            cluster.change(redis_url=",".join(urls))
            await self._restart_all()
            self.done["Redis server added"] += 1
            await cluster.command("redis", "drain", name)
            while True:
                listed = orjson.loads(await cluster.command("redis", "list", "--json"))
                [drained] = [server for server in listed if server["name"] == name]
                if drained["may_go"]:
                    break
                await asyncio.sleep(1.0)
            cluster.change(redis_url=",".join(url for url in urls if url != leaving))
            await self._restart_all()
            await cluster.command("redis", "undrain", name)
            self.done["Redis server drained and taken out"] += 1

    async def _trouble_network(self, strike: Strike) -> None:
        name, kind = self._rng.choice(sorted(self.lines)), self._rng.choice(sorted(_TROUBLES))
        self._soon(self._on_line(name, kind, strike.seconds))

    async def _on_line(self, name: str, kind: str, seconds: float) -> None:
        line = self.lines[name]
        async with self._troubled[name]:
            went = time.monotonic()
            _TROUBLES[kind](line, self._rng)
            await asyncio.sleep(seconds)
            await line.heal()
            if kind == "half-open":
                line.reset()  # the other end knows nothing of these connections any more
            away = self.platform_away if name == "the callback" else self.away
            away.append((went, time.monotonic()))
        self.done[f"{kind} to {name}"] += 1

    async def _outage(self, strike: Strike) -> None:
        what = f"{self.ground.outage} for {strike.seconds:g} s"
        self._soon(self._trouble_database(self.ground.away, what, strike.seconds))

    async def _forbid_database_writes(self, strike: Strike) -> None:
        if isinstance(self.ground, PostgresGround):
            what = f"PostgreSQL read-only for {strike.seconds:g} s"
            self._soon(self._trouble_database(self.ground.read_only, what, strike.seconds))
        else:
            self.skipped["read-only database: SQLite knows none that an owner of the file would meet"] += 1

    async def _fail_database_over(self, _: Strike) -> None:
        self._soon(self._database_failed_over(frozen=self._rng.random() < 0.3))

    async def _database_failed_over(self, *, frozen: bool) -> None:
        assert isinstance(self.ground, ReplicatedGround), "there is no replica"
        async with self._database:
            self.away.append(await self.ground.fail_over(frozen=frozen))
            self.done[f"PostgreSQL's primary {'silent' if frozen else 'killed'}, its replica promoted"] += 1

    async def _lock_rows(self, strike: Strike) -> None:
        self._soon(
            self._trouble_database(self.ground.locked, f"{self.ground.lock} for {strike.seconds:g} s", strike.seconds)
        )

    async def _trouble_database(
        self, trouble: Callable[[], AbstractAsyncContextManager[None]], what: str, seconds: float
    ) -> None:
        async with self._database:
            went = time.monotonic()
            async with trouble():
                await asyncio.sleep(seconds)
            self.away.append((went, time.monotonic()))
            self.done[what] += 1

    async def _provider_away(self, strike: Strike) -> None:
        async def away() -> None:
            async with self._provider:
                went = time.monotonic()
                with provider_away(self.cluster.turn_log):
                    await asyncio.sleep(strike.seconds)
                self.away.append((went, time.monotonic()))
                self.done[f"provider away for {strike.seconds:g} s"] += 1

        self._soon(away())

    async def _fill_disk(self, strike: Strike) -> None:
        disk = self.disk
        if disk is None:
            self.skipped["disk full: this machine lets nobody mount a small one"] += 1
            return

        async def fill() -> None:
            async with self._writing:
                went = time.monotonic()
                with disk.full():
                    await asyncio.sleep(strike.seconds)
                self.away.append((went, time.monotonic()))
                self.done[f"disk full for {strike.seconds:g} s"] += 1

        self._soon(fill())

    async def _storm(self, strike: Strike) -> None:
        self.platform.storm(strike.seconds)
        self.platform_away.append((time.monotonic(), time.monotonic() + strike.seconds))
        self.done[f"429 for {strike.seconds:g} s"] += 1

    def _soon(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._later.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.append(error)


_ACTS: Mapping[str, Callable[[Nemesis, Strike], Awaitable[None]]] = {
    "kill": Nemesis._kill,
    "pause": Nemesis._pause,
    "stop": Nemesis._stop,
    "clock": Nemesis._step_clock,
    "arm": Nemesis._arm_point,
    "flush": Nemesis._flush,
    "restart": Nemesis._restart,
    "cut tail": Nemesis._cut_tail,
    "fail over": Nemesis._fail_over,
    "demote": Nemesis._demote,
    "silence": Nemesis._silence,
    "full Redis": Nemesis._fill_redis,
    "read only": Nemesis._forbid_writes,
    "server away": Nemesis._server_away,
    "reshape": Nemesis._reshape,
    "drain": Nemesis._drain,
    "network": Nemesis._trouble_network,
    "outage": Nemesis._outage,
    "read-only database": Nemesis._forbid_database_writes,
    "database failover": Nemesis._fail_database_over,
    "locks": Nemesis._lock_rows,
    "provider away": Nemesis._provider_away,
    "full disk": Nemesis._fill_disk,
    "storm": Nemesis._storm,
}
_TROUBLES: Mapping[str, Callable[[Proxy, random.Random], None]] = {
    "delay": lambda line, rng: line.delay(rng.uniform(0.05, 0.5)),
    "black hole": lambda line, _: line.hold(),
    "half-open": lambda line, _: line.hold(Way.TO_CLIENT),
    "cut": lambda line, _: line.cut(),
}
