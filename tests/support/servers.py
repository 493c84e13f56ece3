"""Real servers for tests: one Valkey and one PostgreSQL per test process, emptied before each test."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import redis

from shared.embedded import postgres, valkey
from shared.store.database import open_database


@contextmanager
def running_valkey() -> Iterator[valkey.Valkey]:
    with tempfile.TemporaryDirectory(prefix="keyturn-valkey-") as directory:
        server = valkey.start(Path(directory))
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def running_postgres() -> Iterator[postgres.Postgres]:
    server = postgres.start()
    try:
        yield server
    finally:
        server.stop()


def empty_redis(url: str) -> None:
    client = redis.Redis.from_url(url)
    client.flushall()
    client.close()


class Databases:
    """Fresh databases with the schema in place. They are copied from templates: migrating each would be slow."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._template: str | None = None
        self._sqlite_template: bytes | None = None

    def fresh_postgres(self) -> str:
        if self._template is None:
            template = f"template_{uuid4().hex}"
            self._create(template, "template1")
            asyncio.run(_migrate(self._url(template)))
            self._template = template
        name = f"test_{uuid4().hex}"
        self._create(name, self._template)
        return self._url(name)

    def drop_postgres(self, url: str) -> None:
        """Whoever is still connected to it is thrown out. Hundreds of them would fill the disk and slow the server's end."""
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{url.rpartition("/")[2]}" WITH (FORCE)'.encode())

    def fresh_sqlite(self, directory: Path) -> str:
        file = directory / "keyturn.db"
        url = f"sqlite:///{file}"
        if self._sqlite_template is None:
            asyncio.run(_migrate(url))
            self._sqlite_template = file.read_bytes()
        else:
            file.write_bytes(self._sqlite_template)
        return url

    def _create(self, name: str, template: str) -> None:
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())

    def _url(self, name: str) -> str:
        return self._server_url.rpartition("/")[0] + f"/{name}"


async def _migrate(url: str) -> None:
    database = await open_database(url)
    await database.migrate()
    await database.close()
