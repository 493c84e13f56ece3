"""A PostgreSQL primary dies, falls silent or is cut off, and its replica is promoted, while messages come in and turns run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from shared import metrics
from shared.door import Acceptance
from shared.errors import Unavailable
from shared.pipeline import open_pipeline
from shared.settings import Settings
from shared.store import Store, open_store
from shared.store.database import open_database
from shared.store.database import postgres as postgres_database
from shared.store.database.postgres import watch
from tests.store.books import ask, write
from tests.support.pipe import Rig, key_of
from tests.support.pooler import open_pooler
from tests.support.replicas import Replicas, ReplicaServer, open_replicas
from tests.support.working import working

MakeSettings = Callable[..., Settings]
PATIENCE_SECONDS = 120
CHATS = [f"c{n}" for n in range(12)]
FACT = "INSERT INTO facts (scope, name, value) VALUES ('test', :name, 'v')"


@pytest.fixture
async def replicas() -> AsyncIterator[Replicas]:
    async with open_replicas() as opened:
        database = await open_database(opened.url)
        await database.migrate()
        await database.close()
        yield opened


@pytest.fixture
def database_url(replicas: Replicas) -> str:
    return replicas.url


@pytest.fixture
async def store(replicas: Replicas) -> AsyncIterator[Store]:
    async with opened(replicas.url) as store:
        yield store


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = await open_store(url, 10)
    try:
        yield store
    finally:
        await store.database.close()


async def say(rig: Rig, text: str) -> None:
    """One message to each chat, sent again as a platform does until it is taken."""

    async def until_accepted(chat: str) -> None:
        event_id = uuid4().hex
        while True:
            with suppress(Unavailable):
                await rig.accept(text, chat=chat, platform="local", event_id=event_id)
                return
            await asyncio.sleep(0.05)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(until_accepted(chat) for chat in CHATS))


async def answered_in_order(rig: Rig, texts: list[str]) -> None:
    """Wait until each chat has its answers, and see that each message has one, in order."""
    expected = [said for text in texts for said in (text, f"echo: {text}")]
    async with asyncio.timeout(PATIENCE_SECONDS):
        for chat in CHATS:
            while len(await _transcript(rig, chat)) < len(expected):
                await asyncio.sleep(0.05)
    for chat in CHATS:
        assert await _transcript(rig, chat) == expected


async def _transcript(rig: Rig, chat: str) -> list[str]:
    with suppress(Unavailable):
        return await rig.transcript(key_of(chat, platform="local"))
    return []


async def noted(store: Store) -> str:
    """The name of a fact that was written, however often that had to be tried."""
    name = uuid4().hex
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(Unavailable):
                await write(store, f"{FACT} ON CONFLICT DO NOTHING", name=name)
                return name
            await asyncio.sleep(0.05)


def facts(server: ReplicaServer) -> set[str]:
    return {name for (name,) in server.ask("SELECT name FROM facts WHERE scope = 'test'")}


async def failovers(count: float) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while metrics.DATABASE_FAILOVERS._value.get() < count:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("end", ["kill", "freeze"])
async def test_each_message_is_answered_once_and_in_order_while_a_replica_takes_the_place_of_its_primary(
    make_settings: MakeSettings, replicas: Replicas, end: str
) -> None:
    before = metrics.DATABASE_FAILOVERS._value.get()
    async with open_pipeline(make_settings(sweep_seconds=0.2, lease_seconds=3)) as pipe, working(pipe):
        rig = Rig(pipe)
        await say(rig, "before")
        during = asyncio.create_task(say(rig, "during"))
        getattr(replicas.primary, end)()
        await replicas.promote()
        await during
        await say(rig, "after")
        await answered_in_order(rig, ["before", "during", "after"])
        assert metrics.DATABASE_FAILOVERS._value.get() == before + 1


async def test_calls_that_wait_for_a_silent_primary_end_when_another_server_is_promoted(
    store: Store, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "CALL_SECONDS", 3600.0)
    await noted(store)
    replicas.primary.freeze()
    waiting = [asyncio.create_task(write(store, FACT, name=f"{n}")) for n in range(20)]
    await replicas.promote()
    async with asyncio.timeout(PATIENCE_SECONDS):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(error) for error in ended if isinstance(error, BaseException)} <= {Unavailable}
    assert await noted(store) in facts(replicas.primary)


async def test_an_old_primary_that_still_takes_writes_gets_none_once_a_newer_one_was_seen(
    store: Store, replicas: Replicas
) -> None:
    """It was cut off from its replica, not from us: no connection breaks."""
    replicas.primary.set("synchronous_standby_names", "")
    await asyncio.gather(*(noted(store) for _ in range(20)))  # connections that are open
    count = metrics.DATABASE_FAILOVERS._value.get() + 1
    with capture_logs() as lines:
        await replicas.promote()
        await failovers(count)
    told = [line for line in lines if line["event"] == "PostgreSQL has a new primary"]
    assert [(line["server"], line["timeline"]) for line in told] == [(f"127.0.0.1:{replicas.primary.port}", 2)]
    names = set(await asyncio.gather(*(noted(store) for _ in range(20))))
    assert names <= facts(replicas.primary)
    assert not names & facts(replicas.replica)


async def test_an_old_primary_that_comes_back_is_refused_by_running_and_by_new_processes(
    store: Store, replicas: Replicas
) -> None:
    """It stands first in DATABASE_URL, and it would take writes."""
    await noted(store)
    replicas.primary.kill()
    await replicas.promote()
    first = await noted(store)
    replicas.start_old_primary()
    async with opened(replicas.url) as newcomer:
        names = {first, await noted(store), await noted(newcomer)}
        assert names <= facts(replicas.primary)
        replicas.primary.kill()
        for client in (store, newcomer):
            await refused_as_old(client, replicas.replica)
    assert not names & facts(replicas.replica)
    assert len(facts(replicas.replica)) == 1


async def test_a_process_that_stood_still_during_a_failover_writes_nothing_to_the_old_primary(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows only the old primary, which is back when it goes on."""
    monkeypatch.setattr(watch, "LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(watch, "LOOK_NOW_SECONDS", 60.0)
    async with opened(replicas.url) as store:
        await noted(store)
        before = facts(replicas.primary)
        replicas.primary.kill()
        await replicas.promote()
        replicas.start_old_primary()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with suppress(Unavailable):  # the first calls meet broken connections
                    name = await noted(store)
                    break
    assert name in facts(replicas.primary)
    assert facts(replicas.replica) == before


async def refused_as_old(store: Store, old: ReplicaServer) -> None:
    """No write succeeds, and after the first ones, which meet broken connections, the reason is said."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with pytest.raises(Unavailable) as refused:
                await write(store, FACT, name=uuid4().hex)
            if f"127.0.0.1:{old.port} is an old primary: timeline 1" in str(refused.value):
                return


async def test_a_replica_alone_is_no_database_and_its_name_is_said(replicas: Replicas) -> None:
    replicas.primary.kill()
    async with opened(replicas.url) as store:
        with pytest.raises(Unavailable) as refused:
            await write(store, FACT, name="x")
    assert f"127.0.0.1:{replicas.replica.port} is a replica" in str(refused.value)


async def test_a_message_sent_again_is_not_acknowledged_before_a_synchronous_replica_has_it(
    make_settings: MakeSettings, replicas: Replicas
) -> None:
    """Its first sender gave up while the replica was silent: the primary then shows a row that it alone has."""
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'keyturn'"

    async def until_it_waits(accepting: asyncio.Task[Acceptance]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await asyncio.to_thread(replicas.primary.ask, waits):
                assert not accepting.done()
                await asyncio.sleep(0.02)

    async with open_pipeline(make_settings()) as pipe:
        rig = Rig(pipe)
        await rig.accept("before", event_id="evt_0")
        replicas.replica.freeze()
        first = asyncio.create_task(rig.accept("hello", event_id="evt_1"))
        await until_it_waits(first)
        first.cancel()
        with suppress(asyncio.CancelledError, Unavailable):
            await first
        again = asyncio.create_task(rig.accept("hello", event_id="evt_1"))
        await until_it_waits(again)
        replicas.replica.thaw()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert not (await again).fresh
        await replicas.lose_primary()
        assert replicas.primary.ask("SELECT event_id FROM inbox ORDER BY event_id") == [("evt_0",), ("evt_1",)]


async def test_each_transaction_through_a_pooler_is_refused_by_an_old_primary(replicas: Replicas) -> None:
    replicas.primary.set("synchronous_standby_names", "")
    async with open_pooler(replicas.primary.url) as (url, pooler), opened(url) as store:
        await noted(store)
        await replicas.promote()
        await pooler.lead_to(replicas.primary.url)
        assert await noted(store) in facts(replicas.primary)
        await pooler.lead_to(replicas.replica.url)
        with pytest.raises(Unavailable):
            await write(store, FACT, name="lost")
        assert "lost" not in facts(replicas.replica)
        await pooler.lead_to(replicas.primary.url)
        assert await noted(store) in facts(replicas.primary)


async def test_a_server_that_keeps_its_timeline_from_us_works_like_any_other(replicas: Replicas) -> None:
    for statement in (
        "CREATE ROLE limited LOGIN",
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO limited",
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
    ):
        replicas.primary.ask(statement)
    with capture_logs() as lines:
        async with opened(replicas.url.replace("postgres@", "limited@")) as limited:
            assert await noted(limited) in facts(replicas.primary)
            assert await ask(limited, "SELECT current_user AS role") == [{"role": "limited"}]
    assert [line for line in lines if "keeps its timeline from us" in line["event"]]
