"""Behind a connection pooler in transaction mode everything works as it does without one, and `doctor` says that it is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest
from pydantic import SecretStr

from keyturn.cli.doctor.database import check_database
from keyturn.cli.doctor.finding import Level
from shared.pipeline import open_pipeline
from shared.settings import Settings
from shared.store import open_store
from shared.store.database import open_database
from shared.store.database.migrations import migrations
from tests.store.books import ask, commit, load, mail, write
from tests.store.test_search import found, indexed, said
from tests.support.door import WAIT_SECONDS
from tests.support.pipe import Rig, key_of
from tests.support.pooler import Pooler, open_pooler
from tests.support.working import working

pytestmark = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
CHATS = [f"c{n}" for n in range(20)]
Pooled = tuple[str, Pooler]


@pytest.fixture
async def pooled(database_url: str) -> AsyncIterator[Pooled]:
    async with open_pooler(database_url) as (url, pooler):
        yield url, pooler


async def test_conversations_run_through_a_pooler_in_transaction_mode(
    make_settings: Callable[..., Settings], pooled: Pooled
) -> None:
    url, pooler = pooled
    async with open_pipeline(make_settings(database_url=SecretStr(url))) as pipe:
        rig = Rig(pipe)
        async with working(pipe):
            for text in ("one", "two", "three"):  # often enough for statements to be prepared, where they are
                await asyncio.gather(*(rig.accept(text, chat=chat) for chat in CHATS))
            async with asyncio.timeout(WAIT_SECONDS):
                while (await ask(pipe.store, "SELECT COUNT(*) AS n FROM inbox WHERE state = 'answered'"))[0]["n"] < 60:
                    await asyncio.sleep(0.05)
        for chat in CHATS:
            assert await rig.transcript(key_of(chat)) == [
                "one",
                "echo: one",
                "two",
                "echo: two",
                "three",
                "echo: three",
            ]
        assert await ask(pipe.store, "SELECT ref FROM dead") == []
    assert pooler.refused == [] and pooler.transactions > 60


async def test_our_settings_hold_in_each_transaction_and_stay_with_no_server_connection(pooled: Pooled) -> None:
    url, _ = pooled
    store = await open_store(url, 10)
    names = ("statement_timeout", "lock_timeout", "enable_seqscan")
    shown = ", ".join(f"current_setting('{name}') AS {name}" for name in names)
    for _ in range(5):
        [row] = await ask(store, f"SELECT {shown}")
        assert row == {"statement_timeout": "30s", "lock_timeout": "500ms", "enable_seqscan": "off"}
        [row] = await write(store, f"SELECT {shown}")
        assert row["statement_timeout"] == "30s"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        for _ in range(5):
            assert await (await other.execute("SHOW enable_seqscan")).fetchall() == [("on",)]
    await store.database.close()


async def test_commits_search_and_failing_calls_work_through_a_pooler(pooled: Pooled) -> None:
    store = await open_store(pooled[0], 10)
    await said(store, "the otter swims", "an otter indeed", chat="c1")
    await indexed(store)
    assert await found(store, "otter") == {key_of("c1")}
    with pytest.raises(psycopg.errors.UndefinedFunction):
        await ask(store, "SELECT no_such_function()")
    session = (await commit(store, await load(store, key_of("c2")), await mail(store, "one", chat="c2"))).session
    await commit(store, session, await mail(store, "two", chat="c2"))
    assert [entry.text for entry in (await load(store, key_of("c2"))).history] == ["one", "hi", "two", "hi"]
    await store.database.close()


async def test_a_database_is_migrated_through_a_pooler(pooled: Pooled, database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("DROP SCHEMA public CASCADE")
        await connection.execute("CREATE SCHEMA public")
    database = await open_database(pooled[0])
    assert await database.migrate() == [migration.name for migration in migrations("postgres")]
    assert await database.pending_migrations() == []
    await database.close()


async def test_doctor_says_whether_a_pooler_is_in_between(
    make_settings: Callable[..., Settings], pooled: Pooled, database_url: str
) -> None:
    for url, level in ((pooled[0], Level.OK), (database_url, None)):
        usable, findings = await check_database(make_settings(database_url=SecretStr(url)))
        assert usable
        assert [finding.level for finding in findings if "pooler" in finding.detail] == ([level] if level else [])
