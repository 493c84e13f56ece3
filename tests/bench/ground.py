"""The servers under the measurements: one Valkey and one PostgreSQL, as durable as in production, emptied before each."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
import redis

from shared.embedded import postgres, valkey
from shared.errors import ConfigurationError
from shared.store.database import open_database
from tests.bench.board import Absent

ROOT = Path(__file__).parents[2]


class Ground:
    def __init__(self, directory: Path, *, with_postgres: bool = True) -> None:
        self.directory = directory
        self._with_postgres = with_postgres
        self._numbers = itertools.count(1)
        self._valkey = valkey.start(directory / "valkey")
        self._postgres: postgres.Postgres | None = None
        self.redis = redis.Redis.from_url(self._valkey.url)

    @property
    def redis_url(self) -> str:
        return self._valkey.url

    def fresh_redis(self) -> str:
        """An empty Redis."""
        self.redis.flushall()
        return self._valkey.url

    def fresh_directory(self, name: str) -> Path:
        path = self.directory / f"{name}-{next(self._numbers)}"
        path.mkdir()
        return path

    def fresh_database(self, kind: str) -> str:
        """The URL of an empty database with the schema in place: sqlite (synchronous FULL) or postgres (fsync on)."""
        if kind == "sqlite":
            url = f"sqlite:///{self.fresh_directory('sqlite')}/keyturn.db"
        else:
            name = f"bench_{next(self._numbers)}"
            with psycopg.connect(self._postgres_url, autocommit=True) as connection:
                connection.execute(f'CREATE DATABASE "{name}"'.encode())
            url = self._postgres_url.rpartition("/")[0] + f"/{name}"
        asyncio.run(_migrate(url))
        return url

    def drop_database(self, url: str) -> None:
        """What was measured is not needed again; a run makes some gigabytes otherwise."""
        if url.startswith("sqlite:"):
            shutil.rmtree(Path(url.removeprefix("sqlite:///")).parent)
            return
        name = url.rpartition("/")[2]
        with psycopg.connect(self._postgres_url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())

    def reads(self) -> int:
        """How often Redis has read from a client: with pipelining, once per round trip."""
        stats: Any = self.redis.info("stats")
        return int(stats["total_reads_processed"])

    @cached_property
    def _postgres_url(self) -> str:
        if not self._with_postgres:
            raise Absent("PostgreSQL is left out of this run")
        try:
            self._postgres = postgres.start(options=())
        except (ConfigurationError, OSError) as error:
            raise Absent(str(error)) from None
        return self._postgres.url

    def close(self) -> None:
        self.redis.close()
        self._valkey.stop()
        if self._postgres is not None:
            self._postgres.stop()


@contextmanager
def open_ground(*, with_postgres: bool = True) -> Iterator[Ground]:
    with tempfile.TemporaryDirectory(prefix="keyturn-bench-", ignore_cleanup_errors=True) as directory:
        ground = Ground(Path(directory), with_postgres=with_postgres)
        try:
            yield ground
        finally:
            ground.close()


def environment(**added: str) -> dict[str, str]:
    """What children inherit: enough to run, and none of this shell's KEYTURN_ settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith("KEYTURN_")}
    return {**inherited, "PYTHONPATH": str(ROOT), **added}


async def _migrate(url: str) -> None:
    database = await open_database(url)
    try:
        await database.migrate()
    finally:
        await database.close()
