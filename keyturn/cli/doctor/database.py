"""The database: reachable, new enough, durable, with the schema of this version. Looks through a connection of its own."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg

from keyturn.cli.deployment import sqlite_file
from keyturn.cli.doctor.finding import Finding, Level, fail, ok, redacted, said, warn
from keyturn.cli.doctor.replicas import check_servers
from shared.errors import ConfigurationError
from shared.settings import Settings
from shared.sqlite_place import place_in_words
from shared.store.database.migrations import migrations
from shared.store.database.postgres.connection import behind_pooler
from shared.store.database.postgres.servers import servers_of

OLDEST_SQLITE = (3, 35)  # RETURNING
OLDEST_POSTGRES = 130_000
CONNECT_SECONDS = 3
MIGRATE = "run `keyturn migrate`"
_APPLIED = "SELECT name FROM migrations"
_FACTS = "SELECT name, setting FROM pg_settings WHERE name IN ('server_version_num', 'fsync', 'synchronous_commit')"


async def check_database(settings: Settings) -> tuple[bool, list[Finding]]:
    """Whether its tables can be used, and what was found. Writes nothing and makes no file."""
    url, file = settings.database, sqlite_file(settings)
    if file is not None:
        found = _sqlite(file)
    elif url.startswith(("postgresql://", "postgres://")):
        found = await _postgres(url)
    else:
        fix = "correct KEYTURN_DATABASE_URL: it begins with sqlite:/// or postgresql://"
        found = [fail("database", "not a URL that we know", fix)]
    return all(finding.level is not Level.FAIL for finding in found), found


def sqlite_version(found: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, found))
    if found < OLDEST_SQLITE:
        return fail("sqlite version", f"{text} is too old", "use a Python built with SQLite 3.35 or later")
    return ok("sqlite version", text)


def journal_mode(mode: str) -> Finding:
    if mode == "wal":
        return ok("journal_mode", mode)
    return fail(
        "journal_mode", f"{mode}, not wal", "keep the file on a local disk: a network one has no write-ahead log"
    )


def postgres_findings(name: str, facts: dict[str, str]) -> Iterator[Finding]:
    """What its own settings say about it."""
    if int(facts["server_version_num"]) < OLDEST_POSTGRES:
        yield fail(name, f"version {facts['server_version_num']} is too old", "install PostgreSQL 13 or later")
    if facts["fsync"] == "off":
        yield warn(name, "fsync is off: a power cut can destroy it", "ALTER SYSTEM SET fsync = on")
    if facts["synchronous_commit"] == "off":
        fix = "ALTER SYSTEM SET synchronous_commit = on"
        yield warn(name, "synchronous_commit is off: a crash loses the last answers", fix)


def schema(known: list[str], applied: set[str]) -> Finding:
    """Whether the database has the migrations of this version, and perhaps those of a later one."""
    if missing := [name for name in known if name not in applied]:
        return fail("schema", f"migrations are missing: {', '.join(missing)}", MIGRATE)
    if later := sorted(applied - set(known)):
        return warn("schema", f"belongs to a later version: {', '.join(later)}", "install that version here too")
    return ok("schema", "up to date")


def _sqlite(path: Path) -> list[Finding]:
    found = [sqlite_version(sqlite3.sqlite_version_info)]
    if not path.exists():
        return [*found, fail("database", f"no database at {place_in_words(path)}", f"{MIGRATE}, or `keyturn up`")]
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            [[mode]] = connection.execute("PRAGMA journal_mode").fetchall()
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            applied = {row[0] for row in connection.execute(_APPLIED)} if "migrations" in tables else set()
    except sqlite3.Error as error:
        fix = "look at the file, its directory and their permissions, or restore a copy"
        return [*found, fail("database", f"{path} cannot be read: {error}", fix)]
    known = [migration.name for migration in migrations("sqlite")]
    return [*found, ok("database", f"SQLite at {path}"), journal_mode(mode), schema(known, applied)]


async def _postgres(url: str) -> list[Finding]:
    name = f"database {redacted(url)}"
    try:
        servers = servers_of(url)
    except ConfigurationError as error:
        return [fail(name, str(error), "correct KEYTURN_DATABASE_URL")]
    if len(servers) == 1:
        return await _server(name, url, url)
    primary, found = await check_servers(servers)
    return [*found, *(await _server(name, url, primary.conninfo) if primary is not None else ())]


async def _server(name: str, url: str, conninfo: str) -> list[Finding]:
    try:
        async with await psycopg.AsyncConnection.connect(conninfo, connect_timeout=CONNECT_SECONDS) as connection:
            facts = {row[0]: row[1] for row in await (await connection.execute(_FACTS)).fetchall()}
            [[pid]] = await (await connection.execute("SELECT pg_backend_pid()")).fetchall()
            pooled = behind_pooler(connection, pid)
            [[ledger]] = await (await connection.execute("SELECT to_regclass('migrations')::text")).fetchall()
            applied = {row[0] for row in await (await connection.execute(_APPLIED)).fetchall()} if ledger else set()
    except psycopg.Error as error:
        fix = "start it, or correct KEYTURN_DATABASE_URL (address, user, password, database)"
        return [fail(name, f"does not answer: {said(error, url)}", fix)]
    known = [migration.name for migration in migrations("postgres")]
    pooler = "answers, through a connection pooler, which works but costs each call four round trips instead of one"
    return [ok(name, pooler if pooled else "answers"), *postgres_findings(name, facts), schema(known, applied)]
