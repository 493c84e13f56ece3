"""The Redis of a deployment that is to break: one Valkey, or a primary and a replica, at a URL that stays; others beside it.

Where the network or the primary is to change, clients reach it through a proxy; a replica follows through another. Every
server keeps an append-only file.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

from shared.embedded import child, valkey
from tests.support import redis_roles
from tests.support.proxy import Proxy

START_SECONDS = 60.0
SAMPLE_SECONDS = 0.1
REMEMBERED_SECONDS = 30.0  # how far back a tail can be cut
LOST_AT_LEAST = 100  # writes that a failover has to lose
LOSE_WITHIN_SECONDS = 30.0


async def comes_true(condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds, also while a server does not answer yet. False: it did not in START_SECONDS."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(redis.RedisError):
            if condition():
                return True
        await asyncio.sleep(0.01)
    return False


class Server:
    """One Valkey process, and what it keeps."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = child.free_port()
        self.client = redis.Redis(port=self.port, socket_timeout=5)
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, *, follow: int | None = None) -> None:
        """Start on what the append-only file has, as the replica of the primary at port `follow`, if that is given."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [
            "bind 127.0.0.1",
            f"port {self.port}",
            f'dir "{self.directory.resolve()}"',
            f'logfile "{self.directory.resolve()}/valkey.log"',
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "maxmemory-policy noeviction",
            "auto-aof-rewrite-min-size 16mb",  # small, whatever a long run writes
            "repl-diskless-sync-delay 0",
            "replica-ignore-disk-write-errors yes",  # else a replica whose disk is full ends itself
            *([f"replicaof 127.0.0.1 {follow}"] if follow is not None else []),
            *redis_roles.users(),
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._repair(quiet)
        self._process = child.start([valkey.binary(), "-"], dies_by=signal.SIGKILL, stdin=subprocess.PIPE, **quiet)
        assert self._process.stdin is not None
        self._process.stdin.write("\n".join(lines).encode())
        self._process.stdin.close()
        await self._until(lambda: bool(self.client.ping()), "answered")

    def _repair(self, quiet: dict[str, Any]) -> None:
        """As an operator does: a file that a full disk broke off in the middle is cut there, or the server would not start."""
        for file in (self.directory / "appendonlydir").glob("*.incr.aof"):
            command = ["valkey-check-aof", "--fix", str(file)]  # the server's binary goes by this name too
            subprocess.run(command, executable=valkey.binary(), input=b"y\n", check=False, **quiet)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None:
            child.stop(self._process, signal.SIGKILL, 5)
        self.client.close()

    async def follows(self) -> None:
        """Return when this replica has everything that its primary has."""
        await self._until(lambda: self._info("replication").get("master_link_status") == "up", "caught up")

    def changes(self) -> int:
        """Writes so far; counts on through everything but a restart."""
        return int(self._info("persistence")["rdb_changes_since_last_save"])

    def tail(self) -> Path | None:
        """The file that writes are appended to at the moment."""
        found = (self.directory / "appendonlydir").glob("*.incr.aof")
        return max(found, key=lambda path: int(path.name.split(".")[-3]), default=None)

    def _info(self, section: str) -> dict[str, Any]:
        told: Any = self.client.info(section)
        return dict(told)

    async def _until(self, condition: Any, what: str) -> None:
        if not await comes_true(condition):
            said = (self.directory / "valkey.log").read_text().splitlines()[-20:]
            raise AssertionError("\n".join([f"Valkey has not {what}", *said]))


class Valkeys:
    """What a deployment calls its Redis. Faults wait for each other: one at a time."""

    failover = "failover to a stale replica"

    def __init__(self, directory: Path, *, proxied: bool = False, replicated: bool = False, beside: int = 0) -> None:
        self._beside = [
            Server(directory / f"beside{number}") for number in range(beside)
        ]  # servers that share the keys
        self._proxied = proxied or replicated
        self._primary = Server(directory / "a")
        self._replica = Server(directory / "b") if replicated else None
        self.network = Proxy(self._primary.port)  # between everybody and the primary
        self._link = Proxy(self._primary.port)  # between the replica and its primary
        self._sizes: deque[tuple[float, Path, int]] = deque(maxlen=int(REMEMBERED_SECONDS / SAMPLE_SECONDS))
        self._breaking = asyncio.Lock()

    async def open(self) -> None:
        await self.network.open()
        await self._link.open()
        await self._primary.start()
        for server in self._beside:
            await server.start()
        if self._replica is not None:
            await self._replica.start(follow=self._link.port)
        self._watch = asyncio.create_task(self._watch_size())

    @property
    def urls(self) -> list[str]:
        """The one that breaks, then those beside it."""
        ports = [self.network.port if self._proxied else self._primary.port, *(server.port for server in self._beside)]
        return [f"redis://127.0.0.1:{port}/0" for port in ports]

    @property
    def url(self) -> str:
        return ",".join(self.urls)

    @property
    def clients(self) -> list[redis.Redis]:
        """Straight to each server that has keys of its own."""
        return [self.client, *(server.client for server in self._beside)]

    @property
    def client(self) -> redis.Redis:
        """Straight to the primary."""
        return self._primary.client

    @contextmanager
    def stands_still(self) -> Iterator[None]:
        """It is there and answers nobody until the block ends."""
        self._primary.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._primary.signal(signal.SIGCONT)

    async def flush(self) -> None:
        async with self._breaking:
            for client in self.clients:
                client.flushall()

    async def restart(self) -> tuple[float, float]:
        """Kill it and start it again on what its append-only file has. Gives when it went and when it answered again."""
        async with self._breaking:
            return await self._restart()

    async def cut_tail(self, seconds: float) -> tuple[float, float, int]:
        """As after a power cut: the last seconds of the append-only file are gone. Also gives how many bytes those were."""
        async with self._breaking:
            tail = self._primary.tail()
            assert tail is not None
            cut_at = time.monotonic() - seconds
            kept = [size for at, path, size in self._sizes if path == tail and at <= cut_at]
            self._primary.kill()
            went = time.monotonic()
            lost = tail.stat().st_size - (kept[-1] if kept else 0)
            with tail.open("r+b") as file:
                file.truncate(kept[-1] if kept else 0)
            await self._primary.start()
            if self._replica is not None:
                self._link.reset()
                await self._replica.follows()
            return went, time.monotonic(), lost

    async def fail_over(self) -> tuple[float, float, int]:
        """Promote a replica that had not heard of the latest writes. Also gives how many writes were lost."""
        async with self._breaking:
            assert self._replica is not None, "a failover needs a replica"
            await self._replica.follows()
            self._link.hold()
            heard = self._primary.changes()
            deadline = time.monotonic() + LOSE_WITHIN_SECONDS
            while (lost := self._primary.changes() - heard) < LOST_AT_LEAST and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            self._primary.kill()
            went = time.monotonic()
            self.network.reset()
            self._primary, self._replica = self._replica, self._primary
            self._link.reset()
            self.client.replicaof("NO", "ONE")
            self.network.target = self._link.target = self._primary.port
            self._sizes.clear()
            back = time.monotonic()
            await self._link.heal()
            shutil.rmtree(self._replica.directory)
            await self._replica.start(follow=self._link.port)
            return went, back, lost

    async def demote(self) -> None:
        """Another server takes over at the same address and nobody is disconnected: the old primary becomes read-only."""
        async with self._breaking:
            assert self._replica is not None, "a failover needs a replica"
            await self._replica.follows()
            self._primary, self._replica = self._replica, self._primary
            self.client.replicaof("NO", "ONE")
            self.network.target = self._link.target = self._primary.port
            self._sizes.clear()
            self._replica.client.replicaof("127.0.0.1", self._link.port)
            self._link.reset()
            await self._replica.follows()

    async def one_away(self, number: int, seconds: float) -> tuple[float, float]:
        """Kill a server beside the first, and start it again later. Gives when it went and when it answered again."""
        async with self._breaking:
            server = self._beside[number % len(self._beside)]
            server.kill()
            went = time.monotonic()
            await asyncio.sleep(seconds)
            await server.start()
            return went, time.monotonic()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """It takes no writes until the block ends, as a primary that lost its place does."""
        self.client.replicaof("127.0.0.1", child.free_port())
        try:
            yield
        finally:
            self.client.replicaof("NO", "ONE")

    @contextmanager
    def full(self) -> Iterator[None]:
        """It has no memory for anything new until the block ends."""
        self.client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            self.client.config_set("maxmemory", 0)

    async def close(self) -> None:
        self._watch.cancel()
        self.network.close()
        self._link.close()
        self._primary.stop()
        for server in self._beside:
            server.stop()
        if self._replica is not None:
            self._replica.stop()

    async def _restart(self) -> tuple[float, float]:
        self._primary.kill()
        went = time.monotonic()
        await self._primary.start()
        return went, time.monotonic()

    async def _watch_size(self) -> None:
        """Remember how long the append-only file was when."""
        while True:
            if (tail := self._primary.tail()) is not None:
                self._sizes.append((time.monotonic(), tail, tail.stat().st_size))
            await asyncio.sleep(SAMPLE_SECONDS)
