"""Migrations: forward, once, whoever runs them and how many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from keyturn.cli import deployment
from shared.embedded.postgres import Postgres as PostgresServer
from shared.errors import ConfigurationError, Locked, Unavailable
from shared.messages import Entry, Mail, Reply
from shared.settings import Settings
from shared.store import Store, open_store
from shared.store.change import Change, Commit
from shared.store.database import Database, open_database
from shared.store.database.migrations import Migration, migrations
from shared.store.database.postgres import migrating as postgres_migrating
from shared.store.database.postgres.connection import OPTIONS
from shared.store.database.sqlite import migrating as sqlite_migrating
from shared.store.journal import first_session_id
from tests.store.books import accept, ask, commit, contents, indexed_rows, load, mail, proof, write
from tests.support.pipe import an_inbound, control_key, key_of
from tests.support.proxy import Proxy


@pytest.fixture(params=["sqlite", "postgres"])
def bare_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without a schema."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/down/keyturn.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"bare_{uuid4().hex}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return server.url.rpartition("/")[0] + f"/{name}"


FULL_TEXT = ("search_grams", "search_newest")  # each database has an index of its own kind
SPANS = "0030_search_spans"  # PostgreSQL's own kind, as it is now
CONTROL = "0014_control"
CLUSTERED = "0009_clustered"  # the same tables, laid out anew for SQLite
NAMES = [migration.name for migration in migrations("sqlite")]


async def test_a_bare_database_is_brought_up_to_date_once(bare_url: str) -> None:
    database = await open_database(bare_url)
    assert await database.pending_migrations() == NAMES
    assert await database.migrate() == NAMES
    assert await database.pending_migrations() == []
    assert await database.migrate() == []
    await database.close()


async def test_a_database_that_comes_up_later_is_waited_for_and_migrated(
    postgres_server: PostgresServer, make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "LOOK_SECONDS", 0.05)
    name, at = f"late_{uuid4().hex}", urlsplit(postgres_server.url)
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    network, told = Proxy(at.port or 0), asyncio.Event()
    await network.open()
    network.cut()
    user = (at.netloc.rpartition("@")[0] or "postgres") + "@"
    url = SecretStr(f"postgresql://{user}127.0.0.1:{network.port}/{name}")
    waiting = asyncio.create_task(
        deployment.migrate_when_there(make_settings(database_url=url), lambda why: told.set())
    )
    async with asyncio.timeout(60):
        await told.wait()
        assert not waiting.done()
        await network.open()
        assert await waiting == [migration.name for migration in migrations("postgres")]
    network.cut()


async def test_what_was_there_before_a_second_migration_is_there_after_it(bare_url: str) -> None:
    store = await open_store(bare_url, 10)
    await store.database.migrate()
    letter = await mail(store)
    await store.database.migrate()
    assert await store.journal.find(letter.inbound.id) is not None
    await store.database.close()


async def test_sessions_that_were_kept_for_control_messages_are_removed_and_nothing_else(
    bare_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(bare_url, 10)
    with monkeypatch.context() as before:
        for module in (sqlite_migrating, postgres_migrating):
            before.setattr(module, "migrations", lambda d: [m for m in migrations(d) if m.name != CONTROL])
        await store.database.migrate()
    for chat in ("c1", "control"):
        await commit(store, await load(store, key_of(chat)), await mail(store, chat=chat))
    asked, key = an_inbound("/status"), control_key(key_of())
    letter = Mail((await accept(store, asked, key=key)).seq, asked)
    said, told = (Entry("user", "/status", asked.id), Entry("assistant", "all is well")), (Reply("all is well"),)
    facts = Change(facts={(first_session_id(key), "topic"): "t", (first_session_id(key_of()), "topic"): "t"})
    session = replace(await load(store, key), owner="nobody")  # a commit of today finds no owner of a control key
    await store.commit(Commit(session, key, proof(), (letter,), said, told, change=facts))
    found, kept = await contents(store), await ask(store, "SELECT * FROM facts")
    assert await store.database.migrate() == [CONTROL]
    phantom, left = first_session_id(key), await contents(store)
    assert phantom in {row["id"] for row in found["sessions"]} and len(found["messages"]) == 6
    for table, column in (("sessions", "id"), ("messages", "session_id")):
        assert left.pop(table) == [row for row in found.pop(table) if row[column] != phantom]
    assert left == found
    assert await ask(store, "SELECT * FROM facts") == [row for row in kept if row["scope"] != phantom] != []
    again = await accept(store, an_inbound("/stop"), key=key)
    assert again.seq == 2
    await store.database.close()


@pytest.mark.parametrize("bare_url", ["postgres"], indirect=True)
async def test_what_an_older_version_indexed_is_indexed_anew_and_its_index_is_emptied(
    bare_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(bare_url, 10)
    with monkeypatch.context() as before:
        before.setattr(postgres_migrating, "migrations", lambda d: [m for m in migrations(d) if m.name != SPANS])
        await store.database.migrate()
    for chat in ("c1", "c2"):
        await commit(store, await load(store, key_of(chat)), await mail(store, f"a heron in {chat}", chat=chat))
    await write(store, "UPDATE sessions SET owner = 'me', searched = message_count")
    await write(
        store,
        """INSERT INTO search_rows (session_id, n, owner, grams)
           SELECT session_id, n, 'me', array_to_tsvector(ARRAY['her', 'ero', 'ron']) FROM messages""",
    )
    await store.database.migrate()
    assert await hits(store, "heron") == {key_of("c1"), key_of("c2")}  # by reading
    while await store.search.index():
        pass
    await store.search.index()
    assert await ask(store, "SELECT id FROM search_rows") == []
    assert len(await indexed_rows(store)) == 4
    assert await hits(store, "heron") == {key_of("c1"), key_of("c2")}
    await store.database.close()


async def hits(store: Store, words: str) -> set[str]:
    found = await store.search.find(words, "me")
    assert found is not None
    return {hit.session_key for hit in found.hits}


async def test_sqlites_rows_and_indexes_are_the_same_after_they_were_laid_out_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/keyturn.db", 10)
    with monkeypatch.context() as before:
        others = [migration for migration in migrations("sqlite") if migration.name != CLUSTERED]
        before.setattr(sqlite_migrating, "migrations", lambda _: others)
        await store.database.migrate()
    for n in range(5):
        for chat in ("c1", "c2"):
            await commit(store, await load(store, key_of(chat)), await mail(store, f"{chat} {n}", chat=chat))
    # sessions_ended is of a later migration, which comes before this one only here
    indexes = """SELECT name, tbl_name FROM sqlite_master
                 WHERE type = 'index' AND sql IS NOT NULL AND name <> 'sessions_ended' ORDER BY name"""
    found = await contents(store), await ask(store, indexes)
    assert await store.database.migrate() == [CLUSTERED]
    assert (await contents(store), await ask(store, indexes)) == found
    await commit(store, await load(store), await mail(store, "after"))
    assert [entry.text for entry in (await load(store)).history][-2:] == ["after", "hi"]
    await store.database.close()


async def test_processes_that_migrate_at_once_apply_each_migration_once(bare_url: str) -> None:
    databases: list[Database] = [await open_database(bare_url) for _ in range(6)]
    looks = [database.pending_migrations() for database in databases[:3]]
    *applied, _, _, _ = await asyncio.gather(*(database.migrate() for database in databases), *looks)
    assert sorted(name for names in applied for name in names) == NAMES
    for database in databases:
        assert await database.pending_migrations() == []
        await database.close()


@pytest.mark.parametrize("bare_url", ["postgres"], indirect=True)
async def test_a_migration_may_run_for_longer_than_a_statement_and_another_one_waits_for_it(
    bare_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Migration("9999_slow", ("SELECT pg_sleep(2)",))
    monkeypatch.setattr(postgres_migrating, "migrations", lambda dialect: [*migrations(dialect), slow])
    for name in ("statement_timeout", "lock_timeout"):
        monkeypatch.setitem(OPTIONS, name, "300ms")
    first, second = await open_database(bare_url), await open_database(bare_url)
    applied = await asyncio.gather(first.migrate(), second.migrate())
    assert sorted(applied) == [[], [*NAMES, "9999_slow"]]
    for database in (first, second):
        await database.close()


@pytest.mark.parametrize("bare_url", ["postgres"], indirect=True)
async def test_while_a_migration_waits_for_a_table_others_can_use_it(
    bare_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(bare_url, 10)
    await store.database.migrate()
    later = Migration("9999_later", ("ALTER TABLE sessions ADD COLUMN later BIGINT",))
    monkeypatch.setattr(postgres_migrating, "migrations", lambda dialect: [*migrations(dialect), later])
    migrating, used = await open_database(bare_url), 0
    async with asyncio.timeout(120):
        async with await psycopg.AsyncConnection.connect(bare_url) as reading:
            await reading.execute(
                "SELECT id FROM sessions"
            )  # a long report: it keeps the table until its transaction ends
            with capture_logs() as lines:
                task = asyncio.create_task(migrating.migrate())
                while len(lines) < 2 or not used:  # it has waited twice, and was passed in between
                    assert not task.done()
                    with suppress(Locked):  # a turn tries again
                        await commit(store, await load(store), await mail(store))
                        used += bool(lines)
        assert await task == ["9999_later"]
    assert {line["event"] for line in lines} == {"migration waits for a table that is in use"}
    await migrating.close()
    await store.database.close()


async def test_without_a_schema_the_store_is_unavailable(bare_url: str) -> None:
    store = await open_store(bare_url, 10)
    with pytest.raises(Unavailable):
        await mail(store)
    with pytest.raises(Unavailable):
        await store.journal.find("x")
    await store.database.migrate()
    assert (await mail(store)).seq == 1
    await store.database.close()


async def test_both_databases_get_the_same_tables_and_indexes() -> None:
    def heads(dialect: str) -> list[str]:
        meant = [m for m in migrations(dialect) if m.name not in (CLUSTERED, SPANS)]
        found = [statement.split("(")[0] for m in meant for statement in m.statements]
        own = (*FULL_TEXT, "CREATE FUNCTION")  # in SQLite, functions belong to connections
        return [head for head in found if not any(name in head for name in own)]

    assert heads("sqlite") == heads("postgres")


async def test_an_unknown_kind_of_database_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        await open_database("mysql://localhost/x")


async def test_a_database_that_is_away_is_unavailable_and_nothing_else(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    store = await open_store(f"sqlite:///{tmp_path}/there/keyturn.db", 10)
    (tmp_path / "there").rmdir()
    with pytest.raises(Unavailable):
        await mail(store)
    (tmp_path / "there").mkdir()
    await store.database.migrate()
    assert (await mail(store)).seq == 1
    await store.database.close()
