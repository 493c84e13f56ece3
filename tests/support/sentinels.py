"""A primary, a replica and three Sentinels that watch them: clients are told the Sentinels only, and connect straight to whom
these name. No proxy stands between, so the network's faults cannot be had here."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import redis

from shared.embedded import child, valkey
from tests.support.valkeys import Valkeys, comes_true

SERVICE = "keyturn"
COUNT = 3
DOWN_MILLISECONDS = 2000  # a server that is silent for so long is gone
FAILOVER_MILLISECONDS = 5000


class SentinelValkeys(Valkeys):
    """What a deployment calls its Redis, reached through Sentinels."""

    failover = "failover by Sentinels"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, replicated=True)
        self._directory = directory
        self._ports = [child.free_port() for _ in range(COUNT)]
        self._sentinels: list[subprocess.Popen[bytes]] = []

    @property
    def client(self) -> redis.Redis:
        """Straight to whom the Sentinels call the primary."""
        if self._replica is not None and self._named() == self._replica.port:
            return self._replica.client
        return self._primary.client

    async def open(self) -> None:
        assert self._replica is not None
        await self._primary.start()
        await self._replica.start(follow=self._primary.port)
        await self._replica.follows()
        self._sentinels = [self._start(port) for port in self._ports]
        self._watch = asyncio.create_task(self._watch_size())
        for port in self._ports:
            await self._until(lambda port=port: self._knows_everybody(port), f"Sentinel {port} to know the others")

    @property
    def urls(self) -> list[str]:
        return [f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self._ports)}/{SERVICE}/0"]

    async def fail_over(self) -> tuple[float, float, int]:
        """Kill the primary and wait until the Sentinels have another one. The old one comes back when that is done, and is made
        its replica. How many writes were lost is not known."""
        async with self._breaking:
            await self._settled()
            old = self._primary
            old.kill()
            went = time.monotonic()
            await self._until(lambda: self._named() not in (0, old.port), "the Sentinels to name another primary")
            back = time.monotonic()
            await old.start()
            await self._settled()
            return went, back, 0

    async def demote(self) -> None:
        """An operator asks the Sentinels for another primary, and nobody is disconnected."""
        async with self._breaking:
            await self._settled()
            old = self._primary.port
            await self._until(self._asked_to_fail_over, "the Sentinels to agree to a failover")
            await self._until(lambda: self._named() not in (0, old), "the Sentinels to name another primary")
            await self._settled()

    async def _settled(self) -> None:
        """Return when the Sentinels agree about the primary and the other server has everything. On a slow machine they may
        change their mind by themselves."""
        await self._until(self._is_settled, "the Sentinels to agree about a primary and its replica")

    def _is_settled(self) -> bool:
        assert self._replica is not None
        if self._named() == self._replica.port:
            self._primary, self._replica = self._replica, self._primary
            self._sizes.clear()
        told = self._replica._info("replication")
        follows = told.get("master_link_status") == "up" and told.get("master_port") == self._primary.port
        return self._named() == self._primary.port and follows

    async def close(self) -> None:
        for process in self._sentinels:
            child.stop(process, signal.SIGKILL, 5)
        self._watch.cancel()
        self._primary.stop()
        if self._replica is not None:
            self._replica.stop()

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        directory = self._directory / f"sentinel-{port}"
        directory.mkdir(parents=True)
        lines = [
            "bind 127.0.0.1",
            f"port {port}",
            f'dir "{directory.resolve()}"',
            f'logfile "{directory.resolve()}/sentinel.log"',
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._primary.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_MILLISECONDS}",
            f"sentinel failover-timeout {SERVICE} {FAILOVER_MILLISECONDS}",
        ]
        file = directory / "sentinel.conf"  # it writes down there what it learns
        file.write_text("\n".join(lines) + "\n")
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return child.start([valkey.binary(), str(file), "--sentinel"], dies_by=signal.SIGKILL, **quiet)

    def _ask(self, port: int, *command: str | int) -> Any:
        with redis.Redis(port=port, socket_timeout=5) as client:
            return client.execute_command(*command)

    def _knows_everybody(self, port: int) -> bool:
        state = self._ask(port, "SENTINEL", "MASTER", SERVICE)
        return int(state[b"num-slaves"]) == 1 and int(state[b"num-other-sentinels"]) == COUNT - 1

    def _named(self) -> int:
        """The port of the primary, once all Sentinels agree about it; else 0."""
        named = {int(self._ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1]) for port in self._ports}
        return named.pop() if len(named) == 1 else 0

    def _asked_to_fail_over(self) -> bool:
        return bool(self._ask(self._ports[0], "SENTINEL", "FAILOVER", SERVICE))

    async def _until(self, condition: Any, what: str) -> None:
        assert await comes_true(condition), f"waited in vain for {what}"
