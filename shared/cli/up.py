"""`keyturn up`: starts everything as child processes, restarts what dies, drains on Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import redis
from pydantic import SecretStr

from shared import log
from shared.embedded import child, running, valkey
from shared.errors import ConfigurationError
from shared.redaction import open_redaction
from shared.settings import PREFIX, Settings
from shared.store.database import open_database

READY_SECONDS = 60.0
RESTART_SECONDS = 0.5


@dataclass
class Kept:
    """A child process that is started again when it ends."""

    name: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    restart_at: float = 0.0
    starts: int = field(default=0)


class Up:
    def __init__(self, settings: Settings, host: str, port: int) -> None:
        self._settings = settings
        self._host = host
        self._port = port or child.free_port()
        self._stopping = False

    def run(self) -> None:
        """Returns after Ctrl-C or SIGTERM, when everything has drained."""
        settings = self._settings
        if (other := running.find(settings.data_dir)) is not None:
            raise ConfigurationError(f"already up in this directory: {other.url} (pid {other.pid})")
        log.setup(settings.log_level, "up", settings.secret_values(), open_redaction(settings))
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        embedded = None
        if settings.redis_url is None:
            embedded = valkey.start(settings.data_dir / "valkey")
            settings = settings.model_copy(update={"redis_url": SecretStr(embedded.url)})
        try:
            asyncio.run(_migrate(settings))
            self._keep_running(settings)
        finally:
            running.withdraw(settings.data_dir)
            if embedded is not None:
                embedded.stop()

    def _keep_running(self, settings: Settings) -> None:
        me = [sys.executable, "-m", "shared.cli"]
        receiver = Kept("receive", [*me, "receive", "--host", self._host, "--port", str(self._port)])
        others = [Kept(f"work {n}", [*me, "work"]) for n in range(1, settings.workers + 1)]
        others.append(Kept("housekeep", [*me, "housekeep"]))
        if settings.telegram.polls:
            others.append(Kept("listen telegram", [*me, "listen", "telegram"]))
        environment = _environment(settings)
        try:
            for kept in (*others, receiver):
                self._start(kept, environment)
            self._announce_when_ready(settings, receiver, settings.workers)
            while not self._stopping:
                for kept in (receiver, *others):
                    self._restart_if_dead(kept, environment)
                time.sleep(0.1)
        finally:
            self._drain(receiver, others, settings)

    def _start(self, kept: Kept, environment: dict[str, str]) -> None:
        kept.process = child.start(kept.command, env=environment, stdout=subprocess.DEVNULL)
        kept.starts += 1

    def _restart_if_dead(self, kept: Kept, environment: dict[str, str]) -> None:
        assert kept.process is not None
        if kept.process.poll() is None:
            return
        if kept.process.returncode == 78:  # settings that cannot work: it has said so
            raise ConfigurationError(f"{kept.name} did not start")
        if not kept.restart_at:
            print(f"{kept.name} ended ({kept.process.returncode}), starting it again", file=sys.stderr)
            kept.restart_at = time.monotonic() + RESTART_SECONDS
        if time.monotonic() >= kept.restart_at:
            kept.restart_at = 0.0
            self._start(kept, environment)

    def _announce_when_ready(self, settings: Settings, receiver: Kept, workers: int) -> None:
        """Print the one line that says that everything answers."""
        url = f"http://{self._host}:{self._port}"
        deadline = time.monotonic() + READY_SECONDS
        while not self._stopping and not _answers(url, settings, workers):
            assert receiver.process is not None
            if receiver.process.poll() is not None:
                raise ConfigurationError("the receiver did not start; is the port in use?")
            if time.monotonic() > deadline:
                raise ConfigurationError(f"not ready within {READY_SECONDS:.0f} s")
            time.sleep(0.05)
        if self._stopping:
            return
        servers = ",".join(settings.redis_urls())
        here = running.Running(os.getpid(), url, servers, settings.database, settings.partitions, settings.durability)
        running.announce(settings.data_dir, here)
        print(f"ready {url} · metrics {url}/metrics · agent {settings.agent} · workers {settings.workers}", flush=True)

    def _drain(self, receiver: Kept, others: list[Kept], settings: Settings) -> None:
        """Stop taking in, then let the workers finish what they have."""
        grace = settings.grace_seconds + 5
        for kept in (receiver, *others):
            if kept.process is not None and kept.process.poll() is None:
                kept.process.terminate()
        for kept in (receiver, *others):
            if kept.process is not None:
                child.stop(kept.process, signal.SIGTERM, grace)

    def _stop(self, *_: object) -> None:
        self._stopping = True


def _answers(url: str, settings: Settings, workers: int) -> bool:
    try:
        if httpx.get(f"{url}/readyz", timeout=2, trust_env=False).status_code != 200:
            return False
        alive = 0
        for redis_url in settings.redis_urls():
            client = redis.Redis.from_url(redis_url, socket_timeout=2)
            found: Any = client.smembers("rq:workers")
            alive += sum(1 for name in found if client.exists(name))
        return alive >= workers
    except (httpx.HTTPError, redis.RedisError):
        return False


async def _migrate(settings: Settings) -> None:
    database = await open_database(settings.database)
    try:
        await database.migrate()
    finally:
        await database.close()


def _environment(settings: Settings) -> dict[str, str]:
    """What the children are told: this process's environment, with the servers filled in."""
    assert settings.redis_url is not None
    samples = settings.data_dir / "metrics"
    samples.mkdir(exist_ok=True)
    for old in samples.glob("*.db"):
        old.unlink()
    return {
        **os.environ,
        f"{PREFIX}REDIS_URL": settings.redis_url.get_secret_value(),
        f"{PREFIX}DATABASE_URL": settings.database,
        f"{PREFIX}AGENT": settings.agent,
        "PROMETHEUS_MULTIPROC_DIR": str(samples.resolve()),
        "PYTHONPATH": os.pathsep.join(path for path in (str(Path.cwd()), os.environ.get("PYTHONPATH")) if path),
    }
