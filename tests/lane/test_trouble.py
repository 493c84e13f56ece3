"""A Redis that refuses, is demoted or falls silent: what passes is told from what does not, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr
from structlog.testing import capture_logs

from shared import keys
from shared.embedded import child, valkey
from shared.errors import Unavailable
from shared.lane import Put, garbage
from shared.lane.garbage import purge
from shared.lane.lease import ATTEMPT
from shared.lane.session_lock import JOINED, SessionLock
from shared.leader import Leader
from shared.messages import Session
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.keys import keys_at_work
from shared.redis_servers import RedisServer, code_of
from shared.settings import Settings
from shared.window import Window
from tests.lane.workbench import Workbench
from tests.support.pipe import Rig, key_of
from tests.support.proxy import Way
from tests.support.servers import Databases
from tests.support.valkeys import Valkeys
from tests.support.working import keeping, working
from workers.process.rq_worker import KeyturnWorker

MakeSettings = Callable[..., Settings]
WAIT_SECONDS = 60


@pytest.fixture
async def valkeys(tmp_path: Path) -> AsyncIterator[Valkeys]:
    """A Valkey of the test's own behind a network of its own."""
    valkeys = Valkeys(tmp_path / "valkeys", proxied=True)
    await valkeys.open()
    yield valkeys
    await valkeys.close()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Valkeys]:
    """A primary and its replica."""
    valkeys = Valkeys(tmp_path / "pair", replicated=True)
    await valkeys.open()
    yield valkeys
    await valkeys.close()


async def until(true: Callable[[], Any]) -> None:
    """Wait for something that may be asked of a server which does not answer just now."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            with suppress(redis.RedisError):
                if true():
                    return
            await asyncio.sleep(0.02)


# -- refusals


def _full(client: Any) -> None:
    client.config_set("maxmemory", 1)


def _read_only(client: Any) -> None:
    client.config_set("replica-serve-stale-data", "yes")
    client.replicaof("127.0.0.1", child.free_port())


def _primary_down(client: Any) -> None:
    client.config_set("replica-serve-stale-data", "no")
    client.replicaof("127.0.0.1", child.free_port())


def _too_few_replicas(client: Any) -> None:
    client.config_set("min-replicas-to-write", 1)


REFUSALS = [(_full, "OOM"), (_read_only, "READONLY"), (_primary_down, "MASTERDOWN"), (_too_few_replicas, "NOREPLICAS")]


@pytest.mark.parametrize(("refuse", "code"), REFUSALS, ids=[code for _, code in REFUSALS])
async def test_a_refusal_that_passes_is_told_by_its_code(
    valkeys: Valkeys, refuse: Callable[[Any], None], code: str
) -> None:
    bench = Workbench(valkeys.url)
    assert await bench.put("a", 1) is Put.WOKEN
    refuse(valkeys.client)
    with pytest.raises(Unavailable, match=code):
        await bench.put("b", 1)
    with pytest.raises(Unavailable, match=r"Redis: [A-Z]+$"):
        await bench.server.asked(bench.client.set("anything", 1))
    await bench.close()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"), "WRONGTYPE"),
        (redis.ResponseError("ACL failure in script: may not"), "NOPERM"),
        (redis.exceptions.NoPermissionError("this user may not", status_code="NOPERM"), "NOPERM"),
        (redis.ConnectionError("refused"), ""),
        (OSError("WRONGTYPE"), ""),
    ],
)
def test_a_refusal_is_told_by_its_code_and_nothing_else_has_one(error: Exception, code: str) -> None:
    assert code_of(error) == code


async def test_a_cluster_that_is_not_whole_is_a_refusal_that_passes(tmp_path: Path) -> None:
    own_bus = f"cluster-port {child.free_port()}"  # by default a port that may be taken: the server's own plus 10,000
    server = valkey.start(tmp_path, options=("cluster-enabled yes", own_bus))
    bench = Workbench(server.url)
    try:
        with pytest.raises(Unavailable, match="CLUSTERDOWN"):
            await bench.server.call(ATTEMPT, [keys.state("turns", "k")], ["token", 1])
    finally:
        await bench.close()
        server.stop()


async def test_a_name_of_another_kind_is_no_refusal_that_passes(bench: Workbench) -> None:
    await bench.client.set(keys.state("turns", "k"), "not a hash")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await bench.lane.recover("k")


async def test_what_others_left_under_the_names_of_a_key_is_taken_away_and_its_mail_stays(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.client.zadd(keys.mail("turns", "k"), {b"between": 1.5, b"endless": "inf"})
    await bench.client.delete(keys.state("turns", "k"))
    await bench.client.set(keys.state("turns", "k"), "not a hash")
    await purge(bench.lane, "k")
    assert await bench.mail("k") == [(1, b"m1")]
    assert not await bench.client.exists(keys.state("turns", "k"))


async def test_one_look_at_a_mailbox_takes_so_much_away_and_no_more(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "AT_ONCE", 2)
    await bench.client.zadd(keys.mail("turns", "k"), {b"%d" % n: n + 0.5 for n in range(5)})
    for left in (3, 1, 0):
        await purge(bench.lane, "k")
        assert await bench.client.zcard(keys.mail("turns", "k")) == left


async def test_a_mistake_of_the_caller_is_no_outage_and_harms_no_later_call(bench: Workbench) -> None:
    with pytest.raises(TypeError):
        await bench.server.call(ATTEMPT, [keys.state("turns", "k")], [object(), 1])
    assert await bench.put("k", 1) is Put.WOKEN


async def test_a_demoted_primary_is_left_although_it_keeps_its_connections(pair: Valkeys) -> None:
    bench = Workbench(pair.url)
    assert await bench.put("a", 1) is Put.WOKEN
    await bench.client.ping()
    await pair.demote()
    with pytest.raises(Unavailable, match="READONLY"):
        await bench.put("b", 1)
    with pytest.raises(Unavailable, match="READONLY"):
        await bench.server.asked(bench.client.set("c", 1))
    assert await bench.put("b", 1) is Put.WOKEN
    await bench.server.asked(bench.client.set("c", 1))
    assert pair.client.get("c") == b"1" and pair.client.exists(keys.state("turns", "b"))
    await bench.close()


# -- out of memory


async def test_a_journaled_message_is_accepted_while_redis_is_full_and_answered_afterwards(
    make_settings: MakeSettings, valkeys: Valkeys
) -> None:
    settings = make_settings(redis_url=SecretStr(valkeys.url), sweep_seconds=0.2)
    async with open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        with valkeys.full():
            accepted = await rig.accept("hello")
            assert accepted.fresh
        async with working(pipe), asyncio.timeout(WAIT_SECONDS):
            while await rig.transcript() != ["hello", "echo: hello"]:
                await asyncio.sleep(0.02)


async def test_without_a_journal_a_full_redis_refuses_what_it_cannot_keep(
    make_settings: MakeSettings, valkeys: Valkeys
) -> None:
    async with open_pipeline(make_settings(redis_url=SecretStr(valkeys.url), durability="redis")) as pipe:
        with valkeys.full(), pytest.raises(Unavailable):
            await Rig(pipe).accept("hello")
        assert (await Rig(pipe).accept("hello")).fresh


async def test_a_housekeeper_deletes_nothing_while_redis_is_full(make_settings: MakeSettings, valkeys: Valkeys) -> None:
    async with open_pipeline(make_settings(redis_url=SecretStr(valkeys.url))) as pipe:
        rig = Rig(pipe)
        await rig.accept("hello")
        pipe.turns.renewal.let_go(await rig.lease())
        valkeys.client.zadd(keys.due("turns"), {key_of(): 1})
        before = {name: valkeys.client.dump(name) for name in valkeys.client.keys("kt:*")}
        with capture_logs() as lines, valkeys.full():
            async with keeping(pipe):
                await until(lambda: any(line["event"] == "look cut short" for line in lines))
            assert {name: valkeys.client.dump(name) for name in valkeys.client.keys("kt:*")} == before
        assert not [line for line in lines if "garbage" in line["event"]]
        async with keeping(pipe):
            await until(lambda: (valkeys.client.zscore(keys.due("turns"), key_of()) or 0) > 1)


# -- whoever keeps something goes on keeping it


def a_leader(pipe: Pipeline) -> Leader:
    return Leader(pipe.servers, "kt:listener:t:1", ttl=timedelta(seconds=30), every=timedelta(milliseconds=20))


@pytest.fixture
async def sqlite_pipe(databases: Databases, valkeys: Valkeys, tmp_path: Path) -> AsyncIterator[Pipeline]:
    settings = Settings(
        _env_file=None,  # type: ignore[call-arg]
        redis_url=SecretStr(valkeys.url),
        database_url=SecretStr(await asyncio.to_thread(databases.fresh_sqlite, tmp_path)),
        data_dir=tmp_path,
        partitions=1,
        sweep_seconds=0.2,
    )
    async with open_pipeline(settings) as pipe:
        yield pipe


async def test_a_leader_survives_a_full_redis_and_leads_again(sqlite_pipe: Pipeline, valkeys: Valkeys) -> None:
    async with a_leader(sqlite_pipe) as leader:
        await leader.leads.wait()
        with capture_logs() as lines, valkeys.full():
            await until(lambda: lines)
            valkeys.client.delete("kt:listener:t:1")  # as if it had run out meanwhile
        await until(lambda: valkeys.client.get("kt:listener:t:1") is not None)
        assert leader.leads.is_set()


async def test_a_leader_survives_an_error_that_nobody_foresaw_and_says_so(
    sqlite_pipe: Pipeline, valkeys: Valkeys, foreseen: Callable[..., None]
) -> None:
    foreseen("lead")
    async with a_leader(sqlite_pipe) as leader:
        await leader.leads.wait()
        with capture_logs() as lines:
            with valkeys.client.pipeline() as pipeline:
                pipeline.delete("kt:listener:t:1")
                pipeline.lpush("kt:listener:t:1", "garbage")
                pipeline.execute()
            await until(lambda: [line for line in lines if line["log_level"] == "error"])
        valkeys.client.delete("kt:listener:t:1")
        await until(lambda: valkeys.client.get("kt:listener:t:1") is not None)


async def test_a_session_lock_survives_an_error_that_nobody_foresaw_and_says_so(
    sqlite_pipe: Pipeline, valkeys: Valkeys, foreseen: Callable[..., None]
) -> None:
    foreseen("session lock")
    rig = Rig(sqlite_pipe)
    await rig.accept("hello")
    lease = await rig.lease()
    lock = SessionLock(lease, sqlite_pipe.store.journal, renew_seconds=0.02)
    facts = {JOINED + key_of("other"): "1"}
    session = Session("s1", version=1, message_count=0, done_seq=0, history=Window(None, 10), facts=facts)
    assert await lock.follow(session)
    name = keys.session_lock("s1")
    with capture_logs() as lines:
        with valkeys.client.pipeline() as pipeline:
            pipeline.delete(name)
            pipeline.set(name, "garbage")
            pipeline.execute()
        await until(lambda: [line for line in lines if line["log_level"] == "error"])
    valkeys.client.delete(name)
    await until(lambda: valkeys.client.hexists(name, lease.token))
    await lock.give_back()
    assert not valkeys.client.exists(name)


# -- silence


async def test_every_call_ends_when_a_connection_falls_silent_and_the_next_one_succeeds(valkeys: Valkeys) -> None:
    bench = Workbench(valkeys.url)
    await bench.put("k", 1)
    lease = await bench.lease()
    server, lane = bench.server, bench.lane

    async def publish() -> None:
        await server.asked(server.client.publish("a channel", "a word"))

    calls: dict[str, Callable[[], Any]] = {
        "script": lambda: bench.put("k", 2),
        "due": lambda: lane.due(server, 10),
        "look": lambda: lease.look(5),
        "operator": lambda: keys_at_work(lane, 10),
        "publish": publish,
    }
    for name, call in calls.items():
        with suppress(Unavailable):  # its connection may be one that was muted before
            await call()
        await call()
        valkeys.network.mute()
        async with asyncio.timeout(WAIT_SECONDS):
            with pytest.raises(Unavailable):
                await call()
            assert await call() or name in ("publish", "due"), name
    await bench.close()


async def test_a_command_whose_answer_was_lost_is_not_run_a_second_time(valkeys: Valkeys) -> None:
    server = RedisServer(valkeys.url)
    await server.asked(server.client.ping())
    valkeys.network.hold(Way.TO_CLIENT)
    counting = asyncio.create_task(server.asked(server.client.incr("counted")))
    await until(lambda: valkeys.client.get("counted") == b"1")
    valkeys.network.reset()
    await valkeys.network.heal()
    with pytest.raises(Unavailable):
        await counting
    assert await server.asked(server.client.get("counted")) == b"1"
    await server.close()


async def test_a_housekeeper_goes_on_after_its_connections_fell_silent(sqlite_pipe: Pipeline, valkeys: Valkeys) -> None:
    rig = Rig(sqlite_pipe)
    for chat in ("before", "after"):
        await rig.accept("hello", chat=chat)
        sqlite_pipe.turns.renewal.let_go(await rig.lease(key_of(chat)))

    async def expire_and_wait(chat: str) -> None:
        state = keys.state("turns", key_of(chat))
        valkeys.client.hset(state, "until", 1)
        valkeys.client.zadd(keys.due("turns"), {key_of(chat): 1})
        await until(lambda: not valkeys.client.hexists(state, "token"))

    async with keeping(sqlite_pipe):
        await expire_and_wait("before")
        valkeys.network.mute()
        await expire_and_wait("after")


async def test_a_worker_ends_although_a_cancellation_got_lost_on_its_way_to_redis(
    sqlite_pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python 3.11's wait_for does it: the call is done, and nobody hears that it was to be cancelled."""
    beaten, calling, lost = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def losing(*_: object) -> None:
        if not beaten.is_set():  # the first beat is part of the start
            beaten.set()
        elif not lost.is_set():
            calling.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            lost.set()

    async with asyncio.timeout(WAIT_SECONDS):
        async with working(sqlite_pipe):
            monkeypatch.setattr(KeyturnWorker, "_beat_once", losing)
            await calling.wait()
    assert lost.is_set()


async def test_a_worker_ends_although_its_connections_fell_silent(sqlite_pipe: Pipeline, valkeys: Valkeys) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        async with working(sqlite_pipe):
            await until(lambda: valkeys.client.scard("rq:workers") == 1)
            valkeys.network.mute()
