"""A PostgreSQL primary and a streaming replica that take each other's place. No acknowledged write is lost: replication is
synchronous whenever the primary may be killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from shared.embedded import child, postgres

WAIT_SECONDS = 60.0
OPTIONS = (
    "max_connections=300",
    "fsync=off",
    "wal_keep_size=256MB",
    "hot_standby=on",
    "wal_receiver_status_interval=1",
)
FOLLOWS = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND flush_lsn >= pg_current_wal_lsn()"
IS_SYNCHRONOUS = "SELECT 1 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum') AND state = 'streaming'"


class ReplicaServer:
    """One server. Its files stay when it is killed."""

    def __init__(self, home: Path, name: str) -> None:
        self.port = child.free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.data = home / name
        self._home = home
        self._drop = postgres._unprivileged()
        self._binaries = postgres._binaries(home, self._drop)
        self._process: subprocess.Popen[bytes] | None = None

    def initialise(self) -> None:
        self._run(
            "initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )

    def copy_from(self, primary: ReplicaServer) -> None:
        """Become a replica, without anything that was here before."""
        shutil.rmtree(self.data, ignore_errors=True)
        self._run(
            "pg_basebackup", "-d", primary.url, "-D", str(self.data), "-R", "-c", "fast", "-X", "stream", "--no-sync"
        )

    def start(self) -> None:
        command = [
            str(self._binaries / "postgres"),
            "-D",
            str(self.data),
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-k",
            "",
        ]
        for option in OPTIONS:
            command += ["-c", option]
        with (self._home / "log").open("ab") as log:
            self._process = child.start(command, dies_by=signal.SIGINT, cwd="/", stdout=log, stderr=log, **self._drop)
        wait_for(self.answers, f"PostgreSQL to start; see {self._home}/log")

    def answers(self) -> bool:
        try:
            return self.ask("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True, connect_timeout=5, application_name="test") as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def set(self, name: str, value: str) -> None:
        self.ask(f"ALTER SYSTEM SET {name} = '{value}'")
        self.ask("SELECT pg_reload_conf()")

    def kill(self) -> None:
        """All of it at once, as when its machine dies."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def freeze(self) -> None:
        """It keeps its connections and says nothing more; the machine still takes new ones."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self.thaw()
            child.stop(self._process, signal.SIGINT, 10)

    def _signal(self, number: signal.Signals) -> None:
        """The first process before its children, which are in sessions of their own. Nothing if it has ended."""
        assert self._process is not None
        if self._process.poll() is not None:
            return
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        for pid in (self._process.pid, *map(int, children.read_text().split())):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        done = subprocess.run(command, cwd="/", capture_output=True, **self._drop)
        assert done.returncode == 0, done.stderr.decode()


class Replicas:
    """Two servers. `url` names both, in an order that does not change."""

    def __init__(self, home: Path) -> None:
        self.primary, self.replica = ReplicaServer(home, "a"), ReplicaServer(home, "b")
        self.url = f"postgresql://postgres@127.0.0.1:{self.primary.port},127.0.0.1:{self.replica.port}/postgres"

    async def open(self) -> None:
        await asyncio.to_thread(self.primary.initialise)
        self.primary.start()
        await self.replicate()

    async def replicate(self) -> None:
        """Make the other server a synchronous replica. From here on, no write that is acknowledged is lost with the primary."""
        self.replica.stop()
        await asyncio.to_thread(self.replica.copy_from, self.primary)
        self.replica.start()
        self.replica.set(
            "synchronous_standby_names", ""
        )  # a copied setting: nobody would follow it after its promotion
        await asyncio.to_thread(wait_for, lambda: self.primary.ask(FOLLOWS), "the replica to follow")
        self.primary.set("synchronous_standby_names", "*")
        await asyncio.to_thread(wait_for, lambda: self.primary.ask(IS_SYNCHRONOUS), "replication to be synchronous")
        await asyncio.to_thread(wait_for, lambda: self.primary.ask(FOLLOWS), "the replica to have everything")

    async def promote(self) -> None:
        """The replica becomes the primary, whatever the old one does."""
        await asyncio.to_thread(self.replica.ask, "SELECT pg_promote(true, 60)")
        self.primary, self.replica = self.replica, self.primary

    async def lose_primary(self, *, frozen: bool = False) -> tuple[float, float]:
        """The primary dies, or falls silent for a while before it does, and its replica is promoted. Gives when the primary
        went and when there was another."""
        went, old = time.monotonic(), self.primary
        if frozen:
            old.freeze()
        else:
            old.kill()
        await self.promote()
        old.kill()
        return went, time.monotonic()

    def start_old_primary(self) -> None:
        """It comes back as it was: alive, alone, and ready to be written to."""
        self.replica.start()
        self.replica.set("synchronous_standby_names", "")

    def close(self) -> None:
        for server in (self.primary, self.replica):
            server.stop()


@asynccontextmanager
async def open_replicas() -> AsyncIterator[Replicas]:
    home = Path(tempfile.mkdtemp(prefix="keyturn-pg-"))
    home.chmod(0o755)
    if user := postgres._unprivileged():
        os.chown(home, user["user"], user["group"])
    replicas = Replicas(home)
    try:
        await replicas.open()
        yield replicas
    finally:
        replicas.close()
        shutil.rmtree(home, ignore_errors=True)


def wait_for(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
