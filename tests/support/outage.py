"""Servers that go away and come back at the same address, with what they had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import redis

from shared.embedded import child, postgres, valkey
from shared.platforms.api import ApiSettings
from shared.platforms.webhook import WebhookSettings
from shared.settings import Settings
from tests.support.redis_roles import of_process

START_SECONDS = 60.0


class ValkeyOutage:
    """A Valkey of the test's own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server = valkey.start(directory)
        self.url = self._server.url

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        """Start again on the same port, with the same password."""
        password, _, port = self.url.removeprefix("redis://:").removesuffix("/0").partition("@127.0.0.1:")
        self._server = valkey.start(self._directory, port=int(port))
        client = redis.Redis.from_url(self._server.url)
        client.config_set("requirepass", password)
        client.close()


class PostgresOutage:
    """A PostgreSQL of the test's own."""

    def __init__(self) -> None:
        self._server = postgres.start()
        self._process = self._server.process
        self.url = self._server.url

    def stop(self) -> None:
        child.stop(self._process, signal.SIGINT, 10)

    def start(self) -> None:
        command: Any = self._server.process.args
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        user = postgres._unprivileged()
        self._process = child.start(command, dies_by=signal.SIGINT, cwd="/", **quiet, **user)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "PostgreSQL did not come back"
                time.sleep(0.02)

    def remove(self) -> None:
        self.stop()
        self._server.stop()


class SqliteOutage:
    """A SQLite file in a directory of its own. What has not opened the file yet cannot while it is away, not even as root."""

    def __init__(self, directory: Path) -> None:
        self._home, self._away = directory / "home", directory / "away"
        self._home.mkdir()
        self.file = self._home / "keyturn.db"
        self.url = f"sqlite:///{self.file}"

    def stop(self) -> None:
        self._home.rename(self._away)
        self._home.write_text("a file where the directory was")

    def start(self) -> None:
        self._home.unlink()
        self._away.rename(self._home)


@contextmanager
def processes(settings: Settings, *commands: str) -> Iterator[None]:
    """These keyturn commands as processes of their own, with the settings of the test."""
    started = [start_process(settings, command) for command in commands]
    try:
        yield
    finally:
        for process in started:
            child.stop(process, signal.SIGTERM, 20)


def start_process(settings: Settings, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    ours = {
        "REDIS_URL": ",".join(settings.redis_urls()),
        "DATABASE_URL": settings.database,
        "DATA_DIR": str(settings.data_dir),
        "DURABILITY": settings.durability,
        "PARTITIONS": str(settings.partitions),
        "SWEEP_SECONDS": str(settings.sweep_seconds),
        "LEASE_SECONDS": str(settings.lease_seconds),
        "AGENT": settings.agent,
        "WEBHOOK__SECRETS": ",".join(secret.get_secret_value() for secret in settings.block(WebhookSettings).secrets),
        "API__KEYS": ",".join(key.get_secret_value() for key in settings.block(ApiSettings).keys),
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KEYTURN_")}
    environment |= {f"KEYTURN_{name}": value for name, value in ours.items()}
    command = [sys.executable, "-m", "keyturn.cli", *arguments]
    return child.start(command, env=of_process(command, environment), **options)
