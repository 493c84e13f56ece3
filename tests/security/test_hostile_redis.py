"""Somebody else writes to our Redis. He can slow us down and stop us, as its owner could; he cannot run code, read secrets, or
bring a process down for good. See also tests/flow/test_rq_tools.py for forged jobs.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis
from pydantic import SecretStr
from rq.job import Job

from shared import keys
from shared.codec import Serializer
from shared.pipeline import open_pipeline
from shared.settings import Settings
from tests.flow.told import Told, answered, until
from tests.security.test_callback import answering, listening
from tests.support.pipe import Rig, key_of
from workers.upkeep.housekeeper import Housekeeper

TIMES = {"lease_seconds": 1.0, "heartbeat_seconds": 0.3, "sweep_seconds": 0.2, "backoff_seconds": 0.05}


@pytest.fixture
def settings(redis_url: str, database_url: str) -> Settings:
    return Settings(
        _env_file=None,  # type: ignore[call-arg]
        redis_url=SecretStr(redis_url),
        database_url=SecretStr(database_url),
        partitions=1,
        **TIMES,  # type: ignore[arg-type]
    )


@pytest.fixture
def told(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Told]:
    told = Told(tmp_path, redis_url, database_url, partitions=1, **TIMES)
    yield told
    told.close()


@pytest.fixture
def client(redis_url: str) -> Any:
    return redis.Redis.from_url(redis_url)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that appears when anything of the attacker's was run."""
    return tmp_path / "canary"


class Exploding:
    """Unpickling it runs a command."""

    def __init__(self, canary: Path) -> None:
        self._command = f"touch {canary}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self._command,)


def bombs(canary: Path) -> list[bytes]:
    plain = pickle.dumps(Exploding(canary))
    return [plain, zlib.compress(plain), pickle.dumps(Exploding(canary), protocol=0), b"\x80\x05garbage", b"\xff\xfe"]


async def test_pickles_anywhere_in_redis_are_never_unpickled_and_stop_nobody(
    rig: Rig, told: Told, client: Any, canary: Path
) -> None:
    accepted = [await rig.accept(f"now-{n}", chat=f"c{n}") for n in range(6)]
    for n, bomb in enumerate(bombs(canary)):
        key, job = key_of(f"c{n}"), f"job{n}"
        client.zadd(keys.mail("turns", key), {bomb: 0.5, bomb + b"1": 1, bomb + b"2": "-inf", bomb + b"3": "+inf"})
        client.hset(keys.state("turns", key), mapping={"attempts": bomb, "until": bomb, "of": bomb, "failed": bomb})
        client.zadd(keys.due("turns"), {bomb: 1, key: 1})
        client.zadd(keys.due("deliveries"), {bomb: 1})
        client.hset(
            f"rq:job:{job}", mapping={"data": bomb, "meta": bomb, "result": bomb, "exc_info": bomb, "lane": key}
        )
        client.hset(f"rq:job:{job}", mapping={"status": "queued", "origin": "turns-0", "lane": bomb})
        client.xadd(f"rq:results:{job}", {"type": 1, "return_value": bomb})
        client.rpush("rq:queue:turns-0", job, bomb)
        client.rpush("rq:queue:deliveries-0", bomb)
        client.zadd("rq:wip:turns-0", {bomb: 1, f"{job}:x": 1})
        client.sadd("rq:workers", bomb, f"rq:worker:evil{n}")
        client.hset(f"rq:worker:evil{n}", mapping={"current_job": bomb, "queues": bomb, "last_heartbeat": bomb})
    workers = [told.work(), told.run("-m", "keyturn.cli", "housekeep")]
    name = await _worker_name(client, told)
    for bomb in bombs(canary):
        client.publish(f"rq:pubsub:{name}", bomb)
        client.publish(keys.events(key_of("c0")), bomb)
        client.hset(f"rq:worker:{name}", mapping={"current_job": bomb, "state": bomb})
    client.publish(f"rq:pubsub:{name}", b"[" * 100_000)
    await answered(rig.pipe, [a.id for a in accepted], told)
    for n in range(6):
        assert await rig.transcript(key_of(f"c{n}")) == [f"now-{n}", f"done now-{n}"]
    later = await rig.accept("now-later")
    await answered(rig.pipe, [later.id], told)
    assert all(worker.poll() is None for worker in workers) and not canary.exists()


async def test_names_of_another_kind_are_cleared_and_their_keys_go_on(rig: Rig, told: Told, client: Any) -> None:
    accepted = []
    for n, kind in enumerate(("mail", "lane")):
        accepted += [await rig.accept(f"now-{kind}", chat=kind)]
        name = (keys.mail if kind == "mail" else keys.state)("turns", key_of(kind))
        client.delete(name)
        client.set(name, "a text") if n else client.rpush(name, "a list")
        client.zadd(keys.due("turns"), {key_of(kind): 1})
    accepted += [await rig.accept("now-innocent", chat="innocent")]
    told.work()
    told.run("-m", "keyturn.cli", "housekeep")
    await answered(rig.pipe, [a.id for a in accepted], told)
    assert await rig.transcript(key_of("mail")) == ["now-mail", "done now-mail"]


async def test_mail_that_does_not_follow_in_the_journals_count_is_not_answered(
    rig: Rig, told: Told, client: Any
) -> None:
    """Numbers come from the journal. Who replaces the next mail itself is believed: Redis has to be closed off for that."""
    accepted = await rig.accept("now-true")
    [true] = client.zrange(keys.mail("turns", key_of()), 0, -1)
    forged = orjson.loads(true)
    forged["inbound"] |= {"id": "in_" + "0" * 30, "text": "now-forged"}
    client.zadd(keys.mail("turns", key_of()), {orjson.dumps(forged): 7})
    told.work()
    told.run("-m", "keyturn.cli", "housekeep")
    await answered(rig.pipe, [accepted.id], told)
    after = await rig.accept("now-after")
    await answered(rig.pipe, [after.id], told)
    assert await rig.transcript() == ["now-true", "done now-true", "now-after", "done now-after"]


async def test_urls_and_callbacks_in_a_job_are_never_called(rig: Rig, told: Told, client: Any, canary: Path) -> None:
    """RQ calls what a job names when it ends, and when its worker died. We do neither: not in the worker, not in the housekeeper."""
    async with listening(answering("200 OK")) as inside:
        hooks = [{"url": inside.url, "job_status": s, "method": "GET", "timeout": 5} for s in ("finished", "failed")]
        names = {f"{name}_callback_name": "os.system" for name in ("success", "failure", "stopped")}
        job = Job.create("os.system", args=[f"touch {canary}"], connection=client, serializer=Serializer)
        evil = {**job.to_dict(), **names, "webhooks": orjson.dumps(hooks), "origin": "turns-0"}
        # One to be refused by the worker, one that seems to have died with its worker, one of ours with more in it.
        client.hset("rq:job:refused", mapping={**evil, "status": "queued"})
        client.rpush("rq:queue:turns-0", "refused")
        client.hset("rq:job:died", mapping={**evil, "status": "started", "worker_name": "evil"})
        client.zadd("rq:wip:turns-0", {"died:execution": int(time.time()) - 3600})
        accepted = await rig.accept("now-hooked")
        ours = [id for id in client.lrange("rq:queue:turns-0", 0, -1) if id != b"refused"]
        client.hset(b"rq:job:" + ours[0], mapping={**names, "webhooks": orjson.dumps(hooks)})
        worker = told.work()
        await answered(rig.pipe, [accepted.id], told)
        await until(lambda: client.hget("rq:job:refused", "status") == b"failed", told)
        stopping = asyncio.Event()
        keeping = asyncio.create_task(Housekeeper(rig.pipe).run(stopping))
        await until(lambda: client.hget("rq:job:died", "status") == b"failed", told)
        await until(lambda: client.hget(b"rq:job:" + ours[0], "status") == b"finished", told)
        stopping.set()
        await keeping
        assert inside.heads == [] and not canary.exists() and worker.poll() is None


async def test_the_least_rights_on_the_page_are_enough(
    rig: Rig, client: Any, redis_url: str, database_url: str, tmp_path: Path
) -> None:
    """A whole pipeline on an ACL user with the rights that SECURITY.md names, who can neither empty nor configure Redis."""
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    [rights] = re.findall(r"The smallest set of rights that Keyturn needs: `([^`]+)`", page)
    client.execute_command("ACL", "SETUSER", "least", "reset", "on", ">least-password", *rights.split())
    url = re.sub(r"://[^@]*@", "://least:least-password@", redis_url)
    told = Told(tmp_path, url, database_url, partitions=1, **TIMES)
    try:
        least: Any = redis.Redis.from_url(url)
        for command in (
            ["FLUSHALL"],
            ["CONFIG", "GET", "*"],
            ["KEYS", "*"],
            ["GET", "other"],
            ["PUBLISH", "other", "x"],
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                least.execute_command(*command)
        worker = told.work()
        told.run("-m", "keyturn.cli", "housekeep")
        own = rig.pipe.settings.model_copy(update={"redis_url": SecretStr(url)})
        async with open_pipeline(own) as pipe:
            accepted = [await Rig(pipe).accept(f"now-{n}", chat=f"c{n}") for n in range(5)]
            await answered(pipe, [a.id for a in accepted], told)
        worker.terminate()
        await until(lambda: worker.poll() is not None, told)
        assert worker.returncode == 0 and "NoPermission" not in told.log() and "NOPERM" not in told.log()
    finally:
        told.close()
        client.execute_command("ACL", "DELUSER", "least")


def test_nothing_of_ours_can_unpickle() -> None:
    """No module of the product so much as names a serializer that runs what it reads."""
    root = Path(__file__).parents[2]
    files = [path for package in ("producers", "workers", "shared") for path in (root / package).rglob("*.py")]
    words = ("import pickle", "pickle.", "DefaultSerializer", "marshal", "shelve", "yaml.load", "eval(", "exec(")
    found = {path.name: word for path in files for word in words if word in path.read_text()}
    assert len(files) > 50 and found == {}


async def _worker_name(client: Any, told: Told) -> str:
    def ours() -> list[bytes]:
        return [name for name in client.smembers("rq:workers") if client.hexists(name, "birth")]

    await until(ours, told)
    name = ours()[0].decode().removeprefix("rq:worker:")
    await until(lambda: client.pubsub_numsub(f"rq:pubsub:{name}")[0][1] == 1, told)
    return str(name)
