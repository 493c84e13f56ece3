"""RQ's own tools work on our queues, workers and jobs while turns run; and nobody runs code of his own through them."""

from __future__ import annotations

import asyncio
import os
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import orjson
import pytest
import redis
from pydantic import SecretStr
from rq import Queue, Worker
from rq.command import send_shutdown_command, send_stop_job_command
from rq.job import Job
from rq.registry import FailedJobRegistry, StartedJobRegistry

from shared.codec import Serializer
from shared.embedded import child
from shared.pipeline import Pipeline
from shared.settings import Settings
from tests.flow.told import Told, answered, ended, until
from tests.support.pipe import Rig, key_of
from tests.support.servers import Databases
from workers.upkeep.housekeeper import Housekeeper

QUEUES = ["turns-0", "deliveries-0", "control-0"]
DASHBOARD = """import sys; sys.argv = ["rq-dashboard", *sys.argv[1:]]; from rq_dashboard.cli import main; main()"""


@pytest.fixture
def sqlite_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
def settings(redis_url: str, sqlite_url: str) -> Settings:
    return Settings(
        _env_file=None,  # type: ignore[call-arg]
        redis_url=SecretStr(redis_url),
        database_url=SecretStr(sqlite_url),
        partitions=1,
        backoff_seconds=0.05,
    )


@pytest.fixture
def told(tmp_path: Path, redis_url: str, sqlite_url: str) -> Iterator[Told]:
    told = Told(tmp_path, redis_url, sqlite_url, partitions=1, backoff_seconds=0.05)
    yield told
    told.close()


@pytest.fixture
def client(redis_url: str) -> Any:
    return redis.Redis.from_url(redis_url)


def the_worker(client: Any) -> str:
    [name] = client.smembers("rq:workers")
    return str(name.decode().removeprefix("rq:worker:"))


async def until_obeying(client: Any, told: Told) -> str:
    """Wait until a worker is there and listens to commands; its name."""
    await until(lambda: client.scard("rq:workers") == 1, told)
    channel = f"rq:pubsub:{the_worker(client)}"
    await until(lambda: client.pubsub_numsub(channel)[0][1] == 1, told)
    return the_worker(client)


async def until_answered(rig: Rig, told: Told, *texts: str) -> None:
    """Say something that needs no telling, in chats of their own, and wait for the answers."""
    accepted = [await rig.accept(f"now-{text}", chat=text) for text in texts]
    await answered(rig.pipe, [a.id for a in accepted], told)


# -- looking


async def test_rq_info_shows_queues_workers_and_jobs_of_running_turns(
    rig: Rig, told: Told, client: Any, redis_url: str
) -> None:
    told.work()
    for text in ("a", "b"):
        await rig.accept(text, chat=text)
    await until(lambda: len(told.begun()) == 2, told)
    name = the_worker(client)
    await until(lambda: client.hget(f"rq:worker:{name}", "state") == b"busy", told)
    shown = told.rq("info", "--url", redis_url)
    assert "turns-0" in shown and "1 workers" in shown
    assert name in told.rq("info", "--url", redis_url, "-W")
    by_queue = told.rq("info", "--url", redis_url, "-R")
    assert "turns-0" in by_queue and name in by_queue
    assert "2 executing" in told.rq("info", "--url", redis_url, "-Q", "turns-0")
    assert name in told.rq("info", "--url", redis_url, "--raw")

    [worker] = Worker.all(connection=client)
    assert (worker.name, worker.get_state(), sorted(worker.queue_names())) == (name, "busy", sorted(QUEUES))
    started = StartedJobRegistry("turns-0", connection=client, serializer=Serializer)
    assert started.count == 2
    jobs = [Job.fetch(id, connection=client, serializer=Serializer) for id in started.get_job_ids()]
    assert {(job.func_name, *job.args) for job in jobs} == {
        ("workers.jobs.take_turns", key_of("a")),
        ("workers.jobs.take_turns", key_of("b")),
    }
    told.go("a", "b")
    await until(lambda: started.count == 0, told)
    assert told.cancelled() == [] and len(told.begun()) == 2  # looking changed nothing


async def test_rq_dashboard_shows_every_page_while_turns_run(rig: Rig, told: Told, client: Any, redis_url: str) -> None:
    told.work()
    await until_answered(rig, told, "finished")
    await rig.accept("a")
    await until(lambda: "a" in told.texts(), told)
    running = StartedJobRegistry("turns-0", connection=client, serializer=Serializer).get_job_ids()
    finished = Queue("turns-0", connection=client, serializer=Serializer).finished_job_registry.get_job_ids()
    assert len(running) == 1 and finished
    port = child.free_port()
    told.run("-c", DASHBOARD, "-u", redis_url, "-j", "-b", "127.0.0.1", "-p", str(port))
    pages = ["/", "/0/view/queues", "/0/view/workers", "/0/view/jobs", "/0/data/queues.json", "/0/data/workers.json"]
    for registry in ("queued", "started", "finished", "failed", "deferred", "scheduled", "canceled"):
        pages.append(f"/0/view/jobs/turns-0/{registry}/8/asc/1")
        pages.append(f"/0/data/jobs/turns-0/{registry}/8/asc/1.json")
    for id in (*running, *finished):
        pages += [f"/0/view/job/{id}", f"/0/data/job/{id}.json"]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, follow_redirects=True) as browser:
        await until_listening(browser, told)
        answers = {page: await browser.get(page) for page in pages}
    assert {page: answer.status_code for page, answer in answers.items() if answer.status_code != 200} == {}
    queues = answers["/0/data/queues.json"].json()["queues"]
    assert {queue["name"] for queue in queues} >= {"turns-0"}
    [worker] = answers["/0/data/workers.json"].json()["workers"]
    assert worker["name"] == the_worker(client)
    [job] = answers["/0/data/jobs/turns-0/started/8/asc/1.json"].json()["jobs"]
    assert job["id"] == running[0]
    assert told.texts().count("a") == 1
    told.go("a")


async def until_listening(browser: httpx.AsyncClient, told: Told) -> None:
    for _ in range(4000):
        try:
            await browser.get("/0/data/queues.json")
            return
        except httpx.ConnectError:
            await asyncio.sleep(0.02)
    raise AssertionError(told.log())


# -- commanding


async def test_suspended_workers_begin_nothing_until_they_are_resumed(
    rig: Rig, told: Told, client: Any, redis_url: str
) -> None:
    told.work()
    await rig.accept("a")
    await until(lambda: told.texts() == ["a"], told)
    key = f"rq:worker:{the_worker(client)}"
    told.rq("suspend", "--url", redis_url)
    await until(lambda: client.hget(key, "state") == b"suspended", told)
    waiting = await rig.accept("now", chat="other")
    told.go("a")  # what runs is finished
    beats: set[bytes] = set()
    await until(lambda: beats.add(client.hget(key, "last_heartbeat")) or len(beats) > 2, told)  # type: ignore[func-returns-value]
    assert told.texts() == ["a"]
    await until(lambda: client.llen("rq:queue:turns-0") == 1, told)
    told.rq("resume", "--url", redis_url)
    await answered(rig.pipe, [waiting.id], told)


async def test_stop_job_stops_a_turn_and_it_is_tried_again(rig: Rig, pipe: Pipeline, told: Told, client: Any) -> None:
    stopping = asyncio.Event()
    keeping = asyncio.create_task(Housekeeper(pipe).run(stopping))
    told.work()
    await until_obeying(client, told)
    accepted = await rig.accept("a")
    other = await rig.accept("b", chat="other")
    await until(lambda: sorted(told.texts()) == ["a", "b"], told)
    jobs = StartedJobRegistry("turns-0", connection=client, serializer=Serializer).get_job_ids()
    [job_id] = [id for id in jobs if Job.fetch(id, connection=client, serializer=Serializer).args == [key_of()]]
    send_stop_job_command(client, job_id, serializer=Serializer)
    await until(lambda: told.cancelled() == ["a"], told)
    await until(lambda: ("a", 2) in [(text, attempt) for text, attempt, _ in told.begun()], told)
    told.go("a", "b")
    await answered(pipe, [accepted.id, other.id], told)
    assert told.texts().count("b") == 1
    stopping.set()
    await keeping


async def test_a_worker_is_ended_by_a_signal_and_by_nobody_who_publishes(rig: Rig, told: Told, client: Any) -> None:
    """RQ's shutdown command is not obeyed: whoever takes messages in may publish, and could keep all workers ended."""
    worker = told.work()
    name = await until_obeying(client, told)
    accepted = await rig.accept("a")
    await until(lambda: told.texts() == ["a"], told)
    send_shutdown_command(client, name)
    await until(lambda: "command not obeyed" in told.log(), told)
    assert "draining" not in told.log() and worker.poll() is None
    worker.terminate()
    await until(lambda: "draining" in told.log(), told)
    assert worker.poll() is None
    told.go("a")
    assert await ended(worker, told) == 0
    await answered(rig.pipe, [accepted.id], told)
    assert told.cancelled() == [] and client.scard("rq:workers") == 0


async def test_commands_that_make_no_sense_are_ignored(rig: Rig, told: Told, client: Any) -> None:
    worker = told.work()
    name = await until_obeying(client, told)
    for nonsense in (b"\xff\x00", b"[]", b"7", b'{"command": null}', b'{"command": "stop-job", "job_id": {"a": 1}}'):
        client.publish(f"rq:pubsub:{name}", nonsense)
    client.publish(f"rq:pubsub:{name}", b'{"command": "kill-horse"}')
    await until_answered(rig, told, "still here")
    worker.terminate()
    await until(lambda: client.scard("rq:workers") == 0, told)


# -- forging


def forged(canary: Path, client: Any) -> dict[str, dict[str, Any]]:
    """Job hashes that would run a command in a stock worker, or break one."""
    command = f"touch {canary}"
    call: list[Any] = ["os.system", None, [command], {}]
    listed = Job.create("os.system", args=[command], connection=client, serializer=Serializer).to_dict()
    pickled = Job.create("os.system", args=[command], connection=client).to_dict()

    class Exploding:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.system, (command,)

    jobs: dict[str, dict[str, Any]] = {
        "json": listed,
        "pickle": pickled,
        "exploding pickle": {**pickled, "data": zlib.compress(pickle.dumps(Exploding()))},
        "not compressed": {**listed, "data": orjson.dumps(call)},
        "a number": {**listed, "data": zlib.compress(b"7")},
        "nothing": {**listed, "data": zlib.compress(b"null")},
        "too few": {**listed, "data": zlib.compress(orjson.dumps(call[:3]))},
        "an instance": {**listed, "data": zlib.compress(orjson.dumps(["system", "os", [command], {}]))},
        "another lane's": {**listed, "data": zlib.compress(orjson.dumps(["workers.jobs.deliver", None, ["x"], {}]))},
        "callbacks": {**listed, "success_callback_name": "os.system", "failure_callback_name": "os.system"},
    }
    for name in list(jobs):
        jobs[f"{name}, idle lane"] = {**jobs[name], "lane": key_of("idle")}
        jobs[f"{name}, waiting lane"] = {**jobs[name], "lane": key_of("victim")}
    return jobs


async def test_forged_jobs_are_not_executed_but_refused_recorded_and_counted(
    rig: Rig, told: Told, client: Any, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    ids = {}
    victim = await rig.accept("now-victim", chat="victim")
    client.rpush("aside", *client.lrange("rq:queue:turns-0", 0, -1))
    client.delete("rq:queue:turns-0")  # the forged jobs come before the victim's own wake
    for name, fields in forged(canary, client).items():
        ids[name] = str(uuid4())
        client.hset(f"rq:job:{ids[name]}", mapping={**fields, "status": "queued", "origin": "turns-0"})
        client.rpush("rq:queue:turns-0", ids[name])
    client.rpush("rq:queue:turns-0", b"\xff\xfe not text")
    client.rpush("rq:queue:turns-0", *client.lrange("aside", 0, -1))
    worker = told.work()
    failed = FailedJobRegistry("turns-0", connection=client, serializer=Serializer)
    await until(lambda: failed.count == len(ids), told)
    await until(lambda: client.llen("rq:queue:turns-0:intermediate") == 0, told)
    assert sorted(failed.get_job_ids()) == sorted(ids.values())
    for name, id in ids.items():
        assert client.hget(f"rq:job:{id}", "status") == b"failed", name
        assert client.xlen(f"rq:results:{id}") == 1, name
    assert told.counted("keyturn_forged_job_total") == len(ids) + 1
    await answered(rig.pipe, [victim.id], told)
    await until_answered(rig, told, "idle", "another")
    assert await rig.transcript(key_of("victim")) == ["now-victim", "done now-victim"]
    row = await rig.pipe.store.journal.find(victim.id)
    assert row is not None and row["attempts"] == 1
    assert worker.poll() is None and not canary.exists()


# -- starting


async def test_rqs_own_command_line_starts_our_worker(rig: Rig, told: Told, client: Any, redis_url: str) -> None:
    ours = ["-w", "workers.process.rq_worker.KeyturnWorker", "-S", "shared.codec.Serializer", "--url", redis_url]
    worker = told.run("-c", "from rq.cli import main; main()", "worker", *ours, *QUEUES)
    await until_obeying(client, told)
    await until_answered(rig, told, "one", "two", "three")
    sent = await rig.pipe.store.outbox.of_session(key_of("one"), after=0)
    assert [orjson.loads(row["payload"])["text"] for row in sent] == ["done now-one"]
    [listed] = Worker.all(connection=client)
    assert sorted(listed.queue_names()) == sorted(QUEUES)
    worker.terminate()
    assert await ended(worker, told) == 0
