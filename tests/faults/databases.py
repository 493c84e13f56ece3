"""Where a run keeps its database, and how that can be taken away: stopped, locked, or on a disk that is full."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import psycopg

from shared.embedded import child
from shared.store.database import open_database
from tests.support.outage import PostgresOutage
from tests.support.pooler import open_pooler
from tests.support.proxy import Proxy

HOLD_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""
LOCKED_SESSIONS = 50
POOLED_CONNECTIONS = 20  # a pooler's own, to the server
LOCK_SESSIONS = "SELECT id FROM sessions ORDER BY updated_at DESC LIMIT %s FOR UPDATE"
DISK_BYTES = 128 << 20  # room for the servers' files, little enough to be filled in a moment
BYTES_PER_MESSAGE = 10_000  # in all tables, indexes and logs together


class Ground(Protocol):
    """A migrated database. Processes go to `url`, which stays the same; the checker goes past every proxy."""

    kind: str
    outage: str  # what `away` does, in words
    lock: str  # what `locked` does, in words
    url: str
    straight_url: str
    network: Proxy | None

    def away(self) -> AbstractAsyncContextManager[None]:
        """Nobody can write to it until the block ends."""

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Somebody else keeps what conversations need until the block ends, and everything answers."""


class SqliteGround:
    kind = "sqlite"
    outage = "SQLite locked by another process"
    lock = "SQLite's write lock kept by another process"
    network: Proxy | None = None

    def __init__(self, file: Path) -> None:
        self._file = file
        self.url = self.straight_url = f"sqlite:///{file}"

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        command = [sys.executable, "-c", HOLD_LOCK, str(self._file)]
        holder = child.start(command, dies_by=signal.SIGKILL, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert holder.stdin is not None and holder.stdout is not None
        try:
            await asyncio.to_thread(holder.stdout.readline)
            yield
        finally:
            child.stop(holder, signal.SIGKILL, 5)
            holder.stdin.close()
            holder.stdout.close()

    def locked(self) -> AbstractAsyncContextManager[None]:
        return self.away()


class PostgresGround:
    """A server of the run's own: other runs must not notice when it stops."""

    kind = "postgres"
    outage = "PostgreSQL stopped"
    lock = f"rows of {LOCKED_SESSIONS} sessions locked"

    def __init__(self, server: PostgresOutage, network: Proxy | None) -> None:
        self._server = server
        self.network = network
        self.straight_url = server.url
        self.url = server.url if network is None else through(network, server.url)

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        self._server.stop()
        try:
            yield
        finally:
            self._server.start()

    def locked(self) -> AbstractAsyncContextManager[None]:
        return rows_locked(self.straight_url)

    @asynccontextmanager
    async def read_only(self) -> AsyncIterator[None]:
        """As a standby would, or a server whose operator stopped writes before the disk was full."""
        await self._forbid_writes("on")
        try:
            yield
        finally:
            await self._forbid_writes("off")

    async def _forbid_writes(self, value: str) -> None:
        options = "-c default_transaction_read_only=off"
        async with await psycopg.AsyncConnection.connect(
            self.straight_url, autocommit=True, options=options
        ) as connection:
            await connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
            await connection.execute("SELECT pg_reload_conf()")


class GuestGround:
    """A database on a PostgreSQL that others use too: it stays where it is."""

    kind = "postgres"
    outage = lock = "nothing"
    network: Proxy | None = None

    def __init__(self, url: str) -> None:
        self.url = self.straight_url = url

    def away(self) -> AbstractAsyncContextManager[None]:
        raise AssertionError("others use this server")

    def locked(self) -> AbstractAsyncContextManager[None]:
        raise AssertionError("others use this server")


def ground_at(url: str) -> Ground:
    """The database at a URL, with the schema in place."""
    return SqliteGround(Path(url.removeprefix("sqlite:///"))) if url.startswith("sqlite:") else GuestGround(url)


@asynccontextmanager
async def open_ground(
    kind: str, directory: Path, *, proxied: bool = False, pooled: bool = False
) -> AsyncIterator[Ground]:
    """A fresh database of either kind, with the schema in place. `pooled`: PostgreSQL behind a pooler in transaction mode."""
    if kind == "sqlite":
        file = SqliteGround(directory / "keyturn.db")
        await migrate(file.url)
        yield file
        return
    server = PostgresOutage()
    network = Proxy(urlsplit(server.url).port or 0) if proxied else None
    try:
        await migrate(server.url)
        if network is not None:
            await network.open()
        ground = PostgresGround(server, network)
        if pooled:
            async with open_pooler(ground.url, POOLED_CONNECTIONS) as (ground.url, _):
                yield ground
        else:
            yield ground
    finally:
        if network is not None:
            network.close()
        server.remove()


@asynccontextmanager
async def rows_locked(url: str) -> AsyncIterator[None]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(LOCK_SESSIONS, [LOCKED_SESSIONS])
        yield


async def migrate(url: str) -> None:
    database = await open_database(url)
    await database.migrate()
    await database.close()


def through(proxy: Proxy, url: str) -> str:
    """The same URL by way of the proxy."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{proxy.port}")))


class Disk:
    """A small file system that can be filled."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def full(self) -> Iterator[None]:
        """Nobody can write anything to it until the block ends."""
        filler = self.directory / "filler"
        for size in (1 << 16, 512):
            with filler.open("ab", buffering=0) as file, _until_full():
                while True:
                    file.write(bytes(size))
        try:
            yield
        finally:
            filler.unlink()


@contextmanager
def small_disk(messages: int) -> Iterator[Disk | None]:
    """A tmpfs for a run with so many messages; None where this machine does not let us mount one."""
    with tempfile.TemporaryDirectory(prefix="keyturn-disk-") as name:
        options = f"size={DISK_BYTES + messages * BYTES_PER_MESSAGE},mode=0700"
        mounted = os.geteuid() == 0 and _run("mount", "-t", "tmpfs", "-o", options, "keyturn", name)
        try:
            yield Disk(Path(name)) if mounted else None
        finally:
            if mounted:
                _run("umount", "--lazy", name)


@contextmanager
def _until_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def _run(*command: str) -> bool:
    with suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True).returncode == 0
    return False
