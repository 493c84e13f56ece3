"""Real servers for tests: one Valkey and one PostgreSQL per test process, emptied before each test."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
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


LARGE_BYTES = 8_000_000  # of tables and indexes: emptying them would leave much behind

# What a database with the schema in place looks like: a test that changed any of this has it for itself.
LOOKS = """
SELECT md5(string_agg(found, ' ' ORDER BY found)), sum(bytes)::bigint FROM (
    SELECT format('%s %s', oid, relname) AS found, pg_relation_size(oid) AS bytes
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i', 'S', 'v', 'm')
    UNION ALL SELECT format('%s %s %s %s', attrelid, attname, atttypid, attnotnull), 0
    FROM pg_attribute WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace) AND attnum > 0
    UNION ALL SELECT format('%s %s', oid, tgenabled), 0 FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT format('%s', oid), 0 FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT format('%s', oid), 0 FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT format('%s %s', setdatabase, setconfig), 0 FROM pg_db_role_setting
    UNION ALL SELECT name, 0 FROM migrations
) everything"""

# Rows that migrations themselves have written are kept aside, in a schema that nothing else knows.
SET_ASIDE = """
CREATE SCHEMA as_migrated;
DO $$ DECLARE found record; filled boolean; BEGIN
    FOR found IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'migrations' LOOP
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM public.%I)', found.tablename) INTO filled;
        IF filled THEN EXECUTE format('CREATE TABLE as_migrated.%I AS TABLE public.%I', found.tablename, found.tablename); END IF;
    END LOOP;
END $$"""

EMPTY = """
DO $$ DECLARE found record; BEGIN
    FOR found IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'migrations' LOOP
        EXECUTE format('DELETE FROM public.%I', found.tablename);
    END LOOP;
    FOR found IN SELECT tablename FROM pg_tables WHERE schemaname = 'as_migrated' LOOP
        EXECUTE format('INSERT INTO public.%I TABLE as_migrated.%I', found.tablename, found.tablename);
    END LOOP;
    FOR found IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' LOOP
        EXECUTE format('ALTER SEQUENCE %I RESTART', found.sequencename);
    END LOOP;
END $$"""

END_OTHERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""


class Databases:
    """Databases with the schema in place and no rows. They are copied from templates: migrating each would be slow. On
    PostgreSQL one database serves test after test: copying takes fourteen times as long as emptying."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._template: str | None = None
        self._empty: list[tuple[str, str]] = []  # databases that nobody has: their URL, and how they look
        self._sqlite_template: bytes | None = None

    @contextmanager
    def lent_postgres(self) -> Iterator[str]:
        """A database for the block. Whoever is still connected at its end is thrown out."""
        if self._empty:
            url, looks = self._empty.pop()
        else:
            url = self.fresh_postgres()
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(SET_ASIDE)
                looks = _looks(connection)[0]
        yield url
        try:
            with psycopg.connect(url, autocommit=True, options="-c default_transaction_read_only=off") as connection:
                connection.execute(END_OTHERS)
                found, size = _looks(connection)
                if is_as_before := found == looks and size < LARGE_BYTES:
                    connection.execute(EMPTY)
        except psycopg.Error:
            is_as_before = False
        if is_as_before:
            self._empty.append((url, looks))
        else:
            self.drop_postgres(url)

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


def _looks(connection: psycopg.Connection[Any]) -> tuple[str, int]:
    row = connection.execute(LOOKS.encode()).fetchone()
    assert row is not None
    return str(row[0]), int(row[1])


async def _migrate(url: str) -> None:
    database = await open_database(url)
    await database.migrate()
    await database.close()
