"""A whole deployment as real processes: receivers, workers, housekeepers, and a Redis of its own.

What ends without being told to is started again, as a supervisor would. Everything ends with the block, or with us.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import redis
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from shared import failpoints
from shared.embedded import child
from tests.support.fork_server import CLOCK
from tests.support.scripted import LOG_VARIABLE
from tests.support.valkeys import Valkeys

ROOT = Path(__file__).parents[2]
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
START_SECONDS = 60.0


@dataclass(slots=True)
class Process:
    """One life of a member. Times are on CLOCK_MONOTONIC."""

    member: Member
    pid: int
    started_at: float
    ended_at: float | None = None
    status: int | None = None
    cpu_seconds: float = 0.0
    paused: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def running(self) -> bool:
        return self.ended_at is None


@dataclass(slots=True)
class Member:
    """A place in the deployment that is filled again whenever its process ends, for as long as it is kept."""

    name: str
    role: str
    args: tuple[str, ...]
    kept: bool = True
    process: Process | None = None

    @property
    def running(self) -> Process | None:
        return self.process if self.process is not None and self.process.running else None


class Cluster:
    def __init__(self, directory: Path, environment: dict[str, str], valkeys: Valkeys) -> None:
        self.directory = directory
        self.valkeys = valkeys
        self.members: list[Member] = []
        self.lives: list[Process] = []
        self.restart_seconds = 0.1  # how long a supervisor takes to notice
        self.on_stopped: Callable[[Process], object] = self.resume  # a failpoint made it stand still
        self.environment = environment
        self._changed: dict[str, str] = {}  # settings of processes that start from now on
        self._tags: dict[int, asyncio.Future[int]] = {}
        self._by_pid: dict[int, Process] = {}
        self._restarts: set[asyncio.Task[None]] = set()
        self._closing = False

    # -- members

    async def add(self, role: str, count: int = 1, *args: str) -> list[Member]:
        """Start `count` members of a role: receive, work or housekeep."""
        added = []
        before = sum(member.role == role for member in self.members)
        for number in range(before + 1, before + count + 1):
            own = ("--port", str(child.free_port())) if role == "receive" else ()
            added.append(Member(f"{role}-{number}", role, (*args, *own)))
        self.members += added
        await asyncio.gather(*(self.start(member) for member in added))
        return added

    async def start(self, member: Member) -> Process:
        """Fill a member's place."""
        member.kept = True
        tag = len(self.lives) + len(self._tags)
        while tag in self._tags:
            tag += 1
        pid = self._tags[tag] = asyncio.get_running_loop().create_future()
        log, clock = self.directory / "logs" / f"{member.name}.log", self.directory / "clocks" / member.name
        if not clock.exists():
            clock.write_bytes(CLOCK.pack(0.0))
        self._ask(
            {
                "role": member.role,
                "args": member.args,
                "log": str(log),
                "clock": str(clock),
                "tag": tag,
                "environment": self._changed,
            }
        )
        process = Process(member, await pid, time.monotonic())
        member.process = self._by_pid[process.pid] = process
        self.lives.append(process)
        return process

    def change(self, **settings: float | str) -> None:
        """Settings, named as in Settings, of every process that starts from now on."""
        self._changed |= {f"KEYTURN_{name.upper()}": str(value) for name, value in settings.items()}

    async def command(self, *words: str) -> bytes:
        """What a command of keyturn prints. It is given again while a store is away."""
        deadline = time.monotonic() + START_SECONDS
        environment = {**self.environment, **self._changed}
        while True:
            options: dict[str, Any] = {"cwd": self.directory, "env": environment, "stderr": asyncio.subprocess.PIPE}
            ran = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "keyturn.cli", *words, stdout=asyncio.subprocess.PIPE, **options
            )
            said, trouble = await ran.communicate()
            if ran.returncode == 0:
                return said
            assert time.monotonic() < deadline, f"keyturn {' '.join(words)}: {trouble.decode()}"
            await asyncio.sleep(0.5)

    def of(self, *roles: str) -> list[Member]:
        """The members of these roles that run, are to go on running, and are not paused."""
        standing = [member for member in self.members if member.role in roles and member.kept]
        return [member for member in standing if member.running is not None and not member.running.paused]

    def kill(self, member: Member) -> Process:
        """SIGKILL. The member comes back unless it is no longer kept."""
        return self._signal(member, signal.SIGKILL)

    def pause(self, member: Member) -> Process:
        process = self._signal(member, signal.SIGSTOP)
        process.paused = True
        return process

    def resume(self, process: Process) -> None:
        """Let a paused process go on; nothing if it was killed meanwhile."""
        process.paused = False
        if process.running:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    async def stop(self, member: Member) -> None:
        """SIGTERM, and wait until it has drained."""
        member.kept = False
        process = member.running
        if process is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            await process.ended.wait()

    def set_clock(self, member: Member, error_seconds: float) -> None:
        """Make a member's wall clock wrong by so much from now on, also in its later lives."""
        with (self.directory / "clocks" / member.name).open("r+b") as file:
            file.write(CLOCK.pack(error_seconds))

    def ports(self) -> list[int]:
        """Where the receivers listen."""
        return [int(member.args[-1]) for member in self.members if member.role == "receive"]

    @property
    def redis(self) -> redis.Redis:
        """Straight to the primary of the moment."""
        return self.valkeys.client

    # -- what it says of itself

    def metric(self, name: str, **labels: str) -> float:
        """A counter, added up over all processes that ever were."""
        registry = CollectorRegistry()
        for path in (self.directory / "metrics").glob("*.db"):
            if path.stat().st_size == 0:  # its process was killed between creating it and writing to it
                path.unlink()
        MultiProcessCollector(registry, path=str(self.directory / "metrics"))  # type: ignore[no-untyped-call]
        samples = (sample for family in registry.collect() for sample in family.samples)
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    def log_lines(self, role: str) -> list[dict[str, Any]]:
        """What the members of a role logged, in the order of their files."""
        found = []
        for path in sorted((self.directory / "logs").glob(f"{role}-*.log")):
            for line in path.read_bytes().splitlines():
                with suppress(orjson.JSONDecodeError):
                    found.append(orjson.loads(line))
        return found

    @property
    def turn_log(self) -> Path:
        return self.directory / "turns"

    @property
    def failpoints(self) -> Path:
        return self.directory / "failpoints"

    # -- inside

    def _signal(self, member: Member, number: signal.Signals) -> Process:
        process = member.running
        assert process is not None, f"{member.name} is not running"
        os.kill(process.pid, number)
        return process

    def _ask(self, request: dict[str, Any]) -> None:
        self._to_fork_server.write(orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE))

    async def _open(self) -> None:
        """Start the fork server."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())]
        log = (self.directory / "logs" / "fork_server.log").open("ab")
        options: dict[str, Any] = {"cwd": self.directory, "env": self.environment, "pass_fds": [theirs.fileno()]}
        self._fork_server: subprocess.Popen[bytes] = child.start(
            command, dies_by=signal.SIGKILL, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options
        )
        log.close()
        theirs.close()
        reader, self._to_fork_server = await asyncio.open_connection(sock=ours)
        self._warm, self._ready = False, asyncio.Event()
        self._listener = asyncio.create_task(self._listen(reader))
        async with asyncio.timeout(START_SECONDS):
            await self._ready.wait()
        assert self._warm, (self.directory / "logs" / "fork_server.log").read_text()[-2000:]

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = orjson.loads(line)
            if "tag" in message:
                self._tags.pop(message["tag"]).set_result(message["pid"])
            elif "ended" in message:
                await self._ended(message["ended"], message["status"], message["cpu_seconds"])
            elif "stopped" in message:
                self._stopped(message["stopped"])
            else:
                self._warm = True
                self._ready.set()
        self._ready.set()

    async def _ended(self, pid: int, status: int, cpu_seconds: float) -> None:
        while pid not in self._by_pid:  # it ended before its starter was told that it began
            await asyncio.sleep(0)
        process = self._by_pid.pop(pid)
        process.ended_at, process.status, process.cpu_seconds = time.monotonic(), status, cpu_seconds
        process.ended.set()
        if process.member.kept and not self._closing:
            task = asyncio.create_task(self._start_again(process.member))
            self._restarts.add(task)
            task.add_done_callback(self._restarts.discard)

    def _stopped(self, pid: int) -> None:
        process = self._by_pid.get(pid)
        if process is not None and not process.paused:
            process.paused = True
            self.on_stopped(process)

    async def _start_again(self, member: Member) -> None:
        await asyncio.sleep(self.restart_seconds)
        if member.kept and not self._closing:
            await self.start(member)

    async def _close(self) -> None:
        """End everything, paused or not. Nothing is drained: whoever wants that stops members first."""
        self._closing = True
        for task in list(self._restarts):
            task.cancel()
        for process in [life for life in self.lives if life.running]:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.gather(*(life.ended.wait() for life in self.lives))
        self._listener.cancel()
        self._to_fork_server.close()
        child.stop(self._fork_server, signal.SIGKILL, 5)


@asynccontextmanager
async def open_cluster(
    directory: Path, database_url: str, callback_url: str, valkeys: Valkeys, **settings: float | str
) -> AsyncIterator[Cluster]:
    """Servers and an empty deployment; the database has its schema already. `settings` are named as in Settings."""
    for name in ("logs", "turns", "metrics", "clocks", "failpoints"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    await valkeys.open()
    values: dict[str, float | str] = {
        "redis_url": valkeys.url,
        "database_url": database_url,
        "data_dir": str(directory),
        "agent": "tests.support.scripted:agent",
        "log_level": "warning",
        "dashboard__enabled": "false",
        "webhook__secrets": SECRET,
        "webhook__callback_url": callback_url,
        **settings,
    }
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment = inherited | {
        "PYTHONPATH": str(ROOT),
        "PROMETHEUS_MULTIPROC_DIR": str(directory / "metrics"),
        LOG_VARIABLE: str(directory / "turns"),
        failpoints.VARIABLE: str(directory / "failpoints"),
        **{f"KEYTURN_{name.upper()}": str(value) for name, value in values.items()},
    }
    cluster = Cluster(directory, environment, valkeys)
    try:
        await cluster._open()
        yield cluster
    finally:
        await cluster._close()
        await valkeys.close()


async def until(condition: Callable[[], object], seconds: float, what: str, every: float = 0.05) -> None:
    """Wait for something to become true; the failure says what did not."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        await asyncio.sleep(every)


def log_tail(cluster: Cluster, roles: Sequence[str] = ("receive", "work", "housekeep"), lines: int = 20) -> str:
    """The last lines of each process, for a failure's message: one that stands still may have said why long ago."""
    paths = [path for role in roles for path in sorted((cluster.directory / "logs").glob(f"{role}-*.log"))]
    tails = ((path.stem, path.read_text(errors="replace").splitlines()[-lines:]) for path in paths)
    return "\n".join(f"{name}: {line}" for name, tail in tails for line in tail)
