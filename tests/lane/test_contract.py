"""What our enqueue, start, finish and failure leave in Redis is what stock RQ leaves for the same job.

Both sides run for real: ours in a KeyturnWorker, RQ's in a SimpleWorker. The one field that we add to a job is `lane`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr
from rq import Queue, SimpleWorker
from rq.job import Job
from rq.registry import FailedJobRegistry, FinishedJobRegistry, StartedJobRegistry

import workers.jobs
from shared import keys
from shared.agent.turn import Result, Turn
from shared.codec import Serializer
from shared.lane.rq_names import FAILURE_TTL_SECONDS, executions_key, running_key
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.lane.keyspace import Held, Keyspace, look
from tests.support.pipe import Rig, key_of
from tests.support.servers import Databases
from workers.process import job_beats
from workers.process.parts import open_parts
from workers.process.rq_worker import KeyturnWorker
from workers.process.run import open_rooms

KEY = key_of()
QUEUE = keys.queue_name("turns", keys.partition(KEY, 2))
RESULT_TTL = 5000
JOB_TIMEOUT = 300 * 16 + 60  # what the default settings make of it
NAME = "contract"
FUNCTION = "workers.jobs.take_turns"
WORKER_ROLES = {"rq:worker:<worker>", "rq:workers", f"rq:workers:{QUEUE}"}


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url)


@pytest.fixture
def settings(redis_url: str, databases: Databases, tmp_path: Path) -> Settings:
    return Settings(
        _env_file=None,  # type: ignore[call-arg]
        redis_url=SecretStr(redis_url),
        database_url=SecretStr(databases.fresh_sqlite(tmp_path)),
        partitions=2,
        result_seconds=RESULT_TTL,
        lease_seconds=(JOB_TIMEOUT + 60)
        / 3,  # so that our workers count as alive for as long as RQ's SimpleWorker does
    )


class Looking:
    """Looks at the keyspace while a job runs; as an agent for our worker, as a function for RQ's."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.seen: Keyspace = {}

    async def run(self, turn: Turn) -> Result:
        self.seen = look_at(self.client)
        return Result()

    def nothing(self, key: str) -> None:
        self.seen = look_at(self.client)


def look_at(client: redis.Redis) -> Keyspace:
    return look(client, {NAME: "<worker>"})


def stock_enqueue(client: redis.Redis) -> Job:
    """The same job as ours, made by RQ."""
    return Queue(QUEUE, connection=client, serializer=Serializer).enqueue_call(
        FUNCTION,
        args=[KEY],
        timeout=JOB_TIMEOUT,
        result_ttl=RESULT_TTL,
        failure_ttl=FAILURE_TTL_SECONDS,
        description="drain a key of turns",
    )


def stock_work(client: redis.Redis) -> None:
    """RQ's own worker, in this process, until its queue is empty."""
    queue = Queue(QUEUE, connection=client, serializer=Serializer)
    worker = SimpleWorker([queue], name=NAME, connection=client, serializer=Serializer)
    worker.log_job_description = False
    worker.work(burst=True, logging_level="CRITICAL")


async def our_work(pipe: Pipeline, agent: Any, done: Callable[[], bool]) -> None:
    """Our worker, in this process, until `done`."""
    [server] = pipe.servers.all
    connection = redis.Redis.from_url(server.url)
    worker = KeyturnWorker([QUEUE], name=NAME, connection=connection, serializer=Serializer, prepare_for_work=False)
    worker.hostname, worker.pid = "here", 1
    stopping = asyncio.Event()
    async with open_parts(pipe, agent, NAME) as parts:
        running = asyncio.create_task(worker.run(parts, server, open_rooms(pipe.settings), stopping))
        async with asyncio.timeout(60):
            while not done():
                await asyncio.sleep(0.01)
        stopping.set()
        await running


@contextmanager
def take_turns_is(function: Callable[[str], object], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """RQ calls whatever a job names; let it call this instead."""
    with monkeypatch.context() as patch:
        patch.setattr(workers.jobs, "take_turns", function)
        yield


def jobs_only(keyspace: Keyspace) -> dict[str, Held]:
    """Without the worker's own names, and without RQ's locks."""
    return {
        name: held
        for name, held in keyspace.items()
        if name not in WORKER_ROLES and not name.startswith(("rq:clean_registries:", "rq:scheduler"))
    }


def without_lane(keyspace: dict[str, Held]) -> dict[str, Held]:
    """Ours without the field that is ours alone, which must be there and name the key."""
    job = keyspace["rq:job:<id>"]
    assert job.content["lane"] == KEY
    fields = {name: value for name, value in job.content.items() if name != "lane"}
    return {**keyspace, "rq:job:<id>": replace(job, content=fields)}


def finished(client: redis.Redis) -> bool:
    return bool(client.zcard(f"rq:finished:{QUEUE}"))


def failed(client: redis.Redis) -> bool:
    return bool(client.zcard(f"rq:failed:{QUEUE}"))


async def test_our_enqueue_leaves_what_rqs_leaves(client: redis.Redis, settings: Settings) -> None:
    async with open_pipeline(settings) as pipe:
        await Rig(pipe).accept()
    ours = jobs_only(look_at(client))
    client.flushall()
    stock_enqueue(client)
    stock = jobs_only(look_at(client))
    assert set(stock) == {"rq:queues", "rq:job:<id>", f"rq:queue:{QUEUE}"}
    assert without_lane(ours) == stock


async def test_a_started_and_a_finished_job_are_as_rqs_worker_leaves_them(
    client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours_started, stock_started = Looking(client), Looking(client)
    async with open_pipeline(settings) as pipe:
        await Rig(pipe).accept()
        await our_work(pipe, ours_started, lambda: finished(client))
    ours = look_at(client)
    client.flushall()
    stock_enqueue(client)
    with take_turns_is(stock_started.nothing, monkeypatch):
        stock_work(client)
    stock = look_at(client)

    assert f"rq:wip:{QUEUE}" in stock_started.seen and f"rq:finished:{QUEUE}" in stock
    assert without_lane(jobs_only(ours_started.seen)) == jobs_only(stock_started.seen)
    assert without_lane(jobs_only(ours)) == jobs_only(stock)


async def test_a_job_that_raised_is_as_rqs_worker_leaves_it(
    client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("broken")

    def raises(key: str) -> None:
        raise RuntimeError("broken")

    monkeypatch.setitem(workers.jobs.ALLOWED, FUNCTION, broken)
    async with open_pipeline(settings) as pipe:
        await Rig(pipe).accept()
        await our_work(pipe, Looking(client), lambda: failed(client))
    ours = without_lane(jobs_only(look_at(client)))
    assert_same_failure(client, ours, raises, monkeypatch)


async def test_a_refused_job_is_as_rqs_worker_leaves_a_failed_one(
    client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(key: str) -> None:
        raise RuntimeError("broken")

    async with open_pipeline(settings) as pipe:
        job = stock_enqueue(client)  # names an allowed function, but with arguments that no wake of ours has
        data = Job.create("os.system", args=[KEY], connection=client, serializer=Serializer).to_dict()["data"]
        kept = client.hget(job.key, "data")
        client.hset(job.key, "data", data)
        await our_work(pipe, Looking(client), lambda: failed(client))
        client.hset(job.key, "data", kept)
    assert_same_failure(client, jobs_only(look_at(client)), raises, monkeypatch)


def assert_same_failure(
    client: redis.Redis, ours: dict[str, Held], raises: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.flushall()
    stock_enqueue(client)
    with take_turns_is(raises, monkeypatch):
        stock_work(client)
    stock = jobs_only(look_at(client))
    assert f"rq:failed:{QUEUE}" in stock
    for keyspace in (ours, stock):  # the texts of the two tracebacks differ
        [result] = keyspace["rq:results:<id>"].content
        assert result.pop("exc_string")
    assert ours == stock


async def test_our_worker_presents_itself_as_rqs_does(
    client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same names and the same fields, but for the job at hand: we have many, so we publish how many instead."""
    ours, stock = Looking(client), Looking(client)
    async with open_pipeline(settings) as pipe:
        await Rig(pipe).accept()
        await our_work(pipe, ours, lambda: finished(client))
    left = client.hgetall(f"rq:worker:{NAME}")
    assert left[b"successful_job_count"] == b"1" and float(left[b"total_working_time"]) > 0
    client.flushall()
    stock_enqueue(client)
    with take_turns_is(stock.nothing, monkeypatch):
        stock_work(client)

    for role in sorted(WORKER_ROLES - {"rq:worker:<worker>"}):
        assert ours.seen[role] == stock.seen[role]
    mine, theirs = ours.seen["rq:worker:<worker>"], stock.seen["rq:worker:<worker>"]
    assert mine.type == theirs.type and (mine.lives is None) == (theirs.lives is None)
    assert set(mine.content) - {"running", "capacity", "slots"} == set(theirs.content) - {
        "current_job",
        "current_job_working_time",
    }
    same = ("birth", "death", "queues", "version", "python_version", "last_heartbeat")
    for field in same:
        assert mine.content.get(field) == theirs.content.get(field), field


@pytest.mark.parametrize(("lease_seconds", "listed_s"), [(0.5, 10), (40, 120)])
async def test_a_worker_that_died_is_listed_for_three_leases_and_a_minute_and_no_time_is_too_short_for_its_beats(
    client: redis.Redis, settings: Settings, lease_seconds: float, listed_s: int
) -> None:
    lives: list[int] = []

    class Asking:
        async def run(self, turn: Turn) -> Result:
            lives.append(client.ttl(f"rq:worker:{NAME}"))
            return Result()

    async with open_pipeline(settings.model_copy(update={"lease_seconds": lease_seconds})) as pipe:
        await Rig(pipe).accept()
        await our_work(pipe, Asking(), lambda: finished(client))
    assert listed_s + 60 - 30 < lives[0] <= listed_s + 60  # a machine may be slow; then less is left


async def test_a_job_that_runs_long_is_reported_before_its_entries_run_out(
    client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_beats, "BEATS_PER_TTL", 10**6)  # so it is due by the next heartbeat
    async with open_pipeline(settings) as pipe:
        await Rig(pipe).accept()
        [job_id] = Queue(QUEUE, connection=client, serializer=Serializer).job_ids
        kept: list[bool] = []

        class Running:
            async def run(self, turn: Turn) -> Result:
                job = Job.fetch(job_id, connection=client, serializer=Serializer)
                [execution] = job.get_executions()
                entry, soon = execution.composite_key, time.time() + 1
                executions = executions_key(job_id)
                client.zadd(executions, {execution.id: soon})
                for name in (execution.key, executions):
                    client.expire(name, 60)
                for _ in range(2):  # all of the first report is there when the second begins
                    client.zadd(running_key(QUEUE), {entry: soon})
                    while (client.zscore(running_key(QUEUE), entry) or 0) <= soon:
                        await asyncio.sleep(0.05)
                lives = [client.ttl(name) > 60 for name in (execution.key, executions)]
                kept.append((client.zscore(executions, execution.id) or 0) > soon and all(lives))
                return Result()

        await our_work(pipe, Running(), lambda: finished(client))
    assert kept == [True]


async def test_rq_reads_our_jobs_back(client: redis.Redis, settings: Settings) -> None:
    async with open_pipeline(settings) as pipe:
        await Rig(pipe).accept()
        queue = Queue(QUEUE, connection=client, serializer=Serializer)
        [job_id] = queue.job_ids
        job = Job.fetch(job_id, connection=client, serializer=Serializer)
        assert (job.func_name, list(job.args), job.kwargs) == (FUNCTION, [KEY], {})
        assert (job.origin, job.get_status(), job.description) == (QUEUE, "queued", "drain a key of turns")
        running: list[tuple[str, str]] = []

        class Asking:
            async def run(self, turn: Turn) -> Result:
                job.refresh()  # type: ignore[no-untyped-call]
                registry = StartedJobRegistry(QUEUE, connection=client, serializer=Serializer)
                assert registry.get_job_ids() == [job_id]
                [execution] = job.get_executions()
                running.append((job.get_status(), execution.worker_name))
                return Result()

        await our_work(pipe, Asking(), lambda: finished(client))
    assert running == [("started", NAME)]
    job.refresh()  # type: ignore[no-untyped-call]
    result = job.latest_result()
    assert job.get_status() == "finished" and job.ended_at is not None and job.worker_name == NAME
    assert result is not None and result.type == result.Type.SUCCESSFUL and result.worker_name == NAME
    assert FinishedJobRegistry(QUEUE, connection=client, serializer=Serializer).get_job_ids() == [job_id]
    assert FailedJobRegistry(QUEUE, connection=client, serializer=Serializer).get_job_ids() == []
