"""Backups of a PostgreSQL database, by its own programs: pg_dump writes one, pg_restore and psql put it back.

The programs are told by their environment how to connect, so no password is in a list of processes. A restore is one transaction:
what pg_restore makes of the backup goes to psql between our own BEGIN and COMMIT, with what is held and the audit row. (pg_restore's
own transaction would end before them.) Whoever is killed on the way, the COMMIT is not sent, and the old database stays.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psycopg
from psycopg import pq

from shared.embedded.child import die_with
from shared.errors import CannotDo, Unavailable
from shared.failpoints import reach
from shared.store.backup.content import BackupContent, CopyProgress, Tell, megabytes, unreadable
from shared.store.backup.replacing import LastWords, Replaced, Replacement
from shared.store.database.migrations import migrations
from shared.store.database.postgres.errors import translated
from shared.store.database.postgres.pool import new_pool
from shared.store.database.postgres.servers import servers_of

DUMP, RESTORE, PSQL = "pg_dump", "pg_restore", "psql"
APPLICATION = "keyturn backup"
LOOK_SECONDS = 0.2  # between two looks at how far a dump is
LEAVING_SECONDS = 3.0
SAID = 500  # characters of what a program complained of that are passed on
_CHUNK = 1_000_000
_COPY = re.compile(rb'COPY (?:(?P<schema>\S+|"(?:[^"]|"")+")\.)?(?P<table>\w+) \(.*\) FROM stdin;\n')
_MADE = re.compile(r"CREATE (TABLE|FUNCTION) (\w+)")
_OTHERS = """
SELECT coalesce(nullif(application_name, ''), 'somebody') || coalesce(' of ' || usename, '')
       || coalesce(' at ' || host(client_addr), '') AS name, COUNT(*) AS count
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND coalesce(backend_type, 'client backend') = 'client backend'
GROUP BY name ORDER BY name"""


class PostgresBackup:
    """Backups of the database on a server, or on the primary among several."""

    dialect = "postgres"

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = ", ".join(server.name for server in servers_of(url))

    def check_target(self, file: Path) -> None:
        """A file is never the database."""

    async def write(self, to: Path, tell: Tell) -> None:
        program, _ = found(DUMP), found(RESTORE)
        login = ProgramLogin(await _primary(self._url))
        command = [program, "--format=custom", "--no-password", f"--file={to}", *login.arguments]
        dumping = asyncio.create_task(asyncio.to_thread(_run, command, login.environment))
        while not dumping.done():
            tell(CopyProgress("writing the dump"))
            await asyncio.wait({dumping}, timeout=LOOK_SECONDS)
        await dumping

    def look(self, file: Path) -> BackupContent:
        return look(file)

    @asynccontextmanager
    async def replacing(self, file: Path, content: BackupContent) -> AsyncIterator[Replacement]:
        found(RESTORE), found(PSQL)
        conninfo = await _primary(self._url)
        _check_alone(conninfo)
        yield PostgresReplacement(conninfo, file, content)


class PostgresReplacement:
    """A transaction that replaces all tables."""

    def __init__(self, conninfo: str, file: Path, content: BackupContent) -> None:
        self._conninfo = conninfo
        self._file = file
        self._content = content
        self._last = LastWords((), ())

    def prepare(self, last: LastWords, tell: Tell) -> None:
        self._last = last

    def put_in_place(self, tell: Tell) -> Replaced:
        login, content = ProgramLogin(self._conninfo), self._content
        command = [found(PSQL), "--no-psqlrc", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1", *login.arguments]
        with _fed(command, login.environment) as feed:
            feed("\n".join(["BEGIN;", *_made_since(content), ""]).encode())
            done = 0
            with _output([found(RESTORE), "--clean", "--if-exists", "--file=-", str(self._file)], self._file) as output:
                while chunk := output.read(_CHUNK):
                    feed(chunk)
                    done += len(chunk)
                    tell(CopyProgress("loading the dump", megabytes(done)))
            search = f"SET search_path TO {content.schema};"
            feed("\n".join([search, *(f"{one};" for one in self._last.statements), ""]).encode())
            reach("restore.before_commit")
            feed(b"COMMIT;\n")
        reach("restore.after_commit")
        with psycopg.connect(self._conninfo, autocommit=True, application_name=APPLICATION) as connection:
            connection.execute(f"SET search_path TO {content.schema}".encode())
            numbers = [_number(connection, query) for query in self._last.queries]
        return Replaced(tuple(numbers), None)


class ProgramLogin:
    """How a program of PostgreSQL is told to connect: by its environment, and by an argument for what that cannot say."""

    def __init__(self, conninfo: str) -> None:
        known = {option.keyword.decode(): option for option in pq.Conninfo.get_defaults()}
        self.environment = {**os.environ, "PGAPPNAME": APPLICATION}
        rest = {}
        for name, given in psycopg.conninfo.conninfo_to_dict(conninfo).items():
            if variable := known[name].envvar:
                self.environment[variable.decode()] = str(given)
            elif known[name].dispchar == b"*":
                text = f"DATABASE_URL has {name}, which can be handed to {DUMP} only where everybody sees it: use a key without one"
                raise CannotDo(text)
            else:
                rest[name] = str(given)
        self.arguments = [f"--dbname={psycopg.conninfo.make_conninfo(**rest)}"] if rest else []


def found(program: str) -> str:
    """Where a program is; CannotDo that says what to install."""
    if (path := shutil.which(program)) is None:
        text = f"{program} is not on PATH: install PostgreSQL's client programs (on Debian: postgresql-client), of the server's"
        raise CannotDo(f"{text} version or a newer one")
    return path


def look(file: Path) -> BackupContent:
    """Read a dump through, and say what it holds. CannotDo where pg_restore cannot read all of it."""
    names, counts, schema, table = list[str](), {b"sessions": 0, b"messages": 0}, "", b""
    with _output([found(RESTORE), "--file=-", str(file)], file) as output:
        for line in output:
            if not table:
                if (begun := _COPY.fullmatch(line)) is not None:
                    table = begun["table"]
                    if table == b"migrations":
                        schema = (begun["schema"] or b"public").decode()
            elif line == b"\\.\n":
                table = b""
            elif table in counts:
                counts[table] += 1
            elif table == b"migrations":
                names.append(line.split(b"\t")[0].decode(errors="replace"))
    return BackupContent(tuple(sorted(names)), counts[b"sessions"], counts[b"messages"], schema)


def _made_since(content: BackupContent) -> Iterator[str]:
    """What later versions have made is in no older backup, so pg_restore would leave it, and `migrate` could not make it again."""
    for migration in migrations("postgres"):
        if migration.name not in content.migrations:
            for statement in migration.statements:
                if (made := _MADE.match(statement)) is not None:
                    yield f"DROP {made[1]} IF EXISTS {content.schema}.{made[2]};"


async def _primary(url: str) -> str:
    """How the primary alone is reached. Unavailable where there is none."""
    pool = new_pool(url, 1)
    try:
        async with pool.connection() as connection:
            return connection.server.conninfo
    except Exception as error:
        raise translated(error, writing=False) from None
    finally:
        pool.close()


def _check_alone(conninfo: str) -> None:
    """CannotDo while somebody else is connected to the database. Who has just left may be seen for a moment longer."""
    until = time.monotonic() + LEAVING_SECONDS
    try:
        with psycopg.connect(conninfo, autocommit=True, application_name=APPLICATION) as connection:
            while (others := connection.execute(_OTHERS.encode()).fetchall()) and time.monotonic() < until:
                time.sleep(0.05)
    except psycopg.OperationalError as error:
        raise Unavailable(f"PostgreSQL: {type(error).__name__}") from None
    if others:
        named = ", ".join(name if count == 1 else f"{name} ({count} connections)" for name, count in others)
        raise CannotDo(f"connected to the database: {named}. Stop all processes first, and a pooler too")


def _number(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def _fed(command: list[str], environment: Mapping[str, str]) -> Iterator[Callable[[bytes], None]]:
    """A program that is fed in the block and has done all of it behind the block; CannotDo with what it complained of."""
    with tempfile.TemporaryFile() as complaints:
        process = _start(command, environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=complaints)
        assert process.stdin is not None

        def feed(content: bytes) -> None:
            with suppress(BrokenPipeError):  # it has ended, and says why
                process.stdin.write(content)  # type: ignore[union-attr]
                return
            process.wait()
            raise _failed(command, complaints)

        try:
            yield feed
            with suppress(BrokenPipeError):
                process.stdin.close()
            if process.wait():
                raise _failed(command, complaints)
        finally:
            process.kill()
            process.wait()


@contextmanager
def _output(command: list[str], file: Path) -> Iterator[IO[bytes]]:
    """What pg_restore makes of a backup; CannotDo where it could not read all of it."""
    with tempfile.TemporaryFile() as complaints:
        process = _start(command, os.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints)
        assert process.stdout is not None
        try:
            yield process.stdout
            if process.wait():
                raise unreadable(file, _said(complaints))
        finally:
            process.kill()
            process.stdout.close()
            process.wait()


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    with tempfile.TemporaryFile() as complaints:
        process = _start(command, environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=complaints)
        try:
            if process.wait():
                raise _failed(command, complaints)
        finally:
            process.kill()
            process.wait()


def _start(command: list[str], environment: Mapping[str, str], **streams: Any) -> subprocess.Popen[bytes]:
    """A child that does not outlive us."""
    parent = os.getpid()
    return subprocess.Popen(command, env=environment, preexec_fn=lambda: die_with(parent, signal.SIGKILL), **streams)


def _failed(command: list[str], complaints: IO[bytes]) -> CannotDo:
    return CannotDo(f"{Path(command[0]).name} failed, and the database is as it was: {_said(complaints)}")


def _said(complaints: IO[bytes]) -> str:
    complaints.seek(0)
    return " ".join(complaints.read(10 * SAID).decode(errors="replace").split())[:SAID] or "it did not say why"
