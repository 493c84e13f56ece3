"""A worker process: it drains when told to end, and outlives what happens to Redis."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from shared.embedded import valkey
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.flow.told import Told, answered, ended, until
from tests.support.pipe import Rig, key_of
from tests.support.servers import Databases
from workers.upkeep.housekeeper import Housekeeper

ANY_PASSWORD = "user default on nopass ~* &* +@all"  # so that the URL stays the same when the server starts again


@pytest.fixture
def sqlite_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
def settings(redis_url: str, sqlite_url: str) -> Settings:
    return Settings(  # the same that the processes get from the environment
        _env_file=None,  # type: ignore[call-arg]
        redis_url=SecretStr(redis_url),
        database_url=SecretStr(sqlite_url),
        partitions=1,
    )


@pytest.fixture
def told(tmp_path: Path, redis_url: str, sqlite_url: str) -> Iterator[Told]:
    """Room for one turn at a time, and little patience at the end."""
    told = Told(tmp_path, redis_url, sqlite_url, partitions=1, concurrency=1, grace_seconds=0.5)
    yield told
    told.close()


@pytest.fixture
def client(redis_url: str) -> Any:
    return redis.Redis.from_url(redis_url)


@pytest.fixture
async def housekeeper(pipe: Pipeline) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    keeping = asyncio.create_task(Housekeeper(pipe).run(stopping))
    yield
    stopping.set()
    await keeping


async def test_a_running_turn_is_finished_before_the_worker_ends(
    rig: Rig, tmp_path: Path, redis_url: str, sqlite_url: str
) -> None:
    told = Told(tmp_path, redis_url, sqlite_url, partitions=1, grace_seconds=80)
    try:
        worker = told.work()
        first = await rig.accept("a")
        await until(lambda: told.texts() == ["a"], told)
        worker.send_signal(signal.SIGTERM)
        await until(lambda: "draining" in told.log(), told)
        late = await rig.accept("now-late", chat="late")
        told.go("a")
        assert await ended(worker, told) == 0
        await answered(rig.pipe, [first.id], told)
        assert told.texts() == ["a"] and told.cancelled() == []  # and nothing new was begun
        told.work()
        await answered(rig.pipe, [late.id], told)
    finally:
        told.close()


async def test_a_turn_that_takes_too_long_is_handed_back_without_spending_an_attempt(rig: Rig, told: Told) -> None:
    first = told.work()
    accepted = await rig.accept("a")
    await until(lambda: told.texts() == ["a"], told)
    first.send_signal(signal.SIGTERM)
    assert await ended(first, told) == 0
    assert told.cancelled() == ["a"]
    second = told.work()
    await until(lambda: len(told.begun()) == 2, told)
    assert told.begun() == [("a", 1, first.pid), ("a", 1, second.pid)]
    told.go("a")
    await answered(rig.pipe, [accepted.id], told)
    row = await rig.pipe.store.journal.find(accepted.id)
    assert row is not None and row["attempts"] == 1
    assert await rig.transcript() == ["a", "done a"]


async def test_a_worker_with_all_hands_full_ends_too(rig: Rig, told: Told) -> None:
    """More turns than it has room for: whoever fetches waits for room, and must hear of the end all the same."""
    worker = told.work("--only", "turns")
    accepted = [await rig.accept(text, chat=text) for text in ("a", "b", "c")]
    await until(lambda: len(told.begun()) == 1, told)
    worker.send_signal(signal.SIGTERM)
    assert await ended(worker, told) == 0
    assert len(told.cancelled()) == 1
    told.go("a", "b", "c")
    told.work()
    await answered(rig.pipe, [a.id for a in accepted], told)
    assert {attempt for _, attempt, _ in told.begun()} == {1}


async def test_a_worker_registers_again_after_a_flush(rig: Rig, told: Told, client: Any) -> None:
    worker = told.work()
    await until(lambda: client.scard("rq:workers") == 1, told)
    [name] = client.smembers("rq:workers")
    with client.pipeline() as pipeline:  # a count of the worker's may come in before it notices
        pipeline.flushall().hincrby(name, "failed_job_count", 1).execute()
    await until(lambda: client.smembers("rq:workers") == {name}, told)
    await until(lambda: client.hget(name, "state") == b"idle" and client.ttl(name) > 0, told)
    assert client.hexists(name, "birth")
    accepted = await rig.accept("now")
    await answered(rig.pipe, [accepted.id], told)
    assert worker.poll() is None


async def test_a_turn_that_a_flush_overtakes_is_answered_once(
    rig: Rig, told: Told, client: Any, housekeeper: None
) -> None:
    told.work()
    accepted = [await rig.accept("a"), await rig.accept("now-b")]
    await until(lambda: told.texts() == ["a"], told)
    client.flushall()
    told.go("a")
    await answered(rig.pipe, [a.id for a in accepted], told)
    assert await rig.transcript() == ["a", "done a", "now-b", "done now-b"]


async def test_a_restart_of_redis_is_survived(tmp_path: Path, sqlite_url: str) -> None:
    place = tmp_path / "valkey"
    server = valkey.start(place, options=(ANY_PASSWORD,))
    told = Told(tmp_path, server.url, sqlite_url, partitions=1)
    config = Settings(
        _env_file=None,  # type: ignore[call-arg]
        redis_url=SecretStr(server.url),
        database_url=SecretStr(sqlite_url),
        partitions=1,
    )
    client: Any = redis.Redis.from_url(server.url)
    stopping = asyncio.Event()
    try:
        worker = told.work()
        async with open_pipeline(config) as pipe:
            keeping = asyncio.create_task(Housekeeper(pipe).run(stopping))
            rig = Rig(pipe)
            before = await rig.accept("a")
            await until(lambda: told.texts() == ["a"], told)
            server.process.kill()
            server.process.wait()
            meanwhile = await rig.accept("now-meanwhile", chat="other")  # the journal has it
            port = client.connection_pool.connection_kwargs["port"]
            server = valkey.start(place, port=port, options=(ANY_PASSWORD,))
            told.go("a")
            after = await rig.accept("now-after", chat="third")
            await answered(pipe, [before.id, meanwhile.id, after.id], told)
            for key in (key_of(), key_of("other"), key_of("third")):
                assert len(await rig.transcript(key)) == 2
            assert worker.poll() is None
            await until(lambda: client.scard("rq:workers") == 1, told)
            [name] = client.smembers("rq:workers")
            await until(lambda: client.pubsub_numsub(f"rq:pubsub:{name.decode().rpartition(':')[2]}")[0][1] == 1, told)
            worker.terminate()
            assert await ended(worker, told) == 0
            stopping.set()
            await keeping
    finally:
        told.close()
        client.close()
        server.stop()
