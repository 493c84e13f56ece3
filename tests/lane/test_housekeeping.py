"""What the housekeeper finds after workers died, what it leaves alone, and what it says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared import keys, metrics
from shared.lane.rq_names import JOB_PREFIX
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.support.pipe import Rig, key_of
from tests.support.working import keeping, working
from workers.upkeep import housekeeper
from workers.upkeep.housekeeper import Housekeeper
from workers.upkeep.rq_leftovers import Tidying

WAIT_SECONDS = 60
LASTING = re.compile("rq:(queues|clean_registries.*|workers|workers:.+|worker:.+)")  # of workers that live


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await true():
            await asyncio.sleep(0.02)


def queue_of(pipe: Pipeline, chat: str = "c1") -> str:
    return keys.queue_name("turns", keys.partition(key_of(chat), pipe.turns.partitions))


async def test_a_dead_worker_leaves_nothing_in_rqs_registries(rig: Rig) -> None:
    await rig.accept("hello")
    lease = await rig.lease()
    server, queue = rig.pipe.servers.of_key(key_of()), queue_of(rig.pipe)
    client: Any = server.client
    await client.sadd("rq:workers", "rq:worker:dead")
    await client.sadd(f"rq:workers:{queue}", "rq:worker:dead")
    [entry] = await client.zrange(f"rq:wip:{queue}", 0, -1)
    await client.zadd(f"rq:wip:{queue}", {entry: 1})  # its heartbeat ended long ago
    await Tidying(rig.pipe, server).look()
    assert await client.zcard(f"rq:wip:{queue}") == 0
    assert await client.hget(f"rq:job:{lease.wake.id}", "status") == b"failed"
    assert await client.ttl(f"rq:job:{lease.wake.id}") > 0
    assert await client.zscore(f"rq:failed:{queue}", lease.wake.id) is not None
    assert await client.exists(f"rq:execution:{lease.wake.id}:{lease.wake.execution}") == 0
    assert await client.exists(f"rq:executions:{lease.wake.id}") == 0
    assert await client.smembers("rq:workers") == await client.smembers(f"rq:workers:{queue}") == set()


@pytest.mark.parametrize("registry", ["finished", "failed"])
async def test_what_ended_long_ago_leaves_rqs_registries(rig: Rig, registry: str) -> None:
    server, name = rig.pipe.servers.of_key(key_of()), f"rq:{registry}:{queue_of(rig.pipe)}"
    client: Any = server.client
    seconds, _ = await client.time()
    await client.zadd(name, {"old": seconds - 1, "recent": seconds + 3600})
    await Tidying(rig.pipe, server).look()
    assert await client.zrange(name, 0, -1) == [b"recent"]


async def test_keys_at_rest_leave_nothing_behind_in_rqs_part_either(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(result_seconds=1, sweep_seconds=0.2)) as pipe, working(pipe):
        rig, chats = Rig(pipe), [f"c{n}" for n in range(20)]
        for chat in chats:
            await rig.accept("hello", chat=chat)
        client: Any = pipe.servers.all[0].client

        async def at_rest() -> bool:
            names = [name.decode() async for name in client.scan_iter("*")]
            return all(LASTING.fullmatch(name) for name in names)

        async def all_answered() -> bool:
            return all([await rig.transcript(key_of(chat)) == ["hello", "echo: hello"] for chat in chats])

        await until(all_answered)
        await until(at_rest)


async def test_a_look_that_does_not_end_is_cut_short_and_the_next_one_begins(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeper, "LOOK_LIMIT_SECONDS", 0.1)
    began = 0

    async def never_ends() -> float:
        nonlocal began
        began += 1
        await asyncio.Event().wait()
        return 0.0

    stopping = asyncio.Event()
    with capture_logs() as lines:
        repeating = asyncio.create_task(Housekeeper(rig.pipe)._repeat(stopping, never_ends, 0.01))

        async def again() -> bool:
            return began > 2

        await until(again)
        stopping.set()
        await repeating
    assert {line["event"] for line in lines} == {"look cut short"}


async def test_a_housekeeper_counts_what_it_wakes_and_has_nothing_to_complain_of(rig: Rig) -> None:
    """Several keys at one look: one that was recovered keeps none of the others from being counted."""
    chats = [f"c{n}" for n in range(5)]
    for chat in chats:
        await rig.accept("hello", chat=chat)
        rig.pipe.turns.renewal.let_go(await rig.lease(key_of(chat)))
        await rig.expire_lease(rig.pipe.turns, key_of(chat))
    before = _recovered("turns", "lease_expired"), metrics.LEASE_LOST._value.get()
    with capture_logs() as lines:
        async with keeping(rig.pipe):

            async def woken() -> bool:
                return _recovered("turns", "lease_expired") - before[0] == len(chats)

            await until(woken)
    assert metrics.LEASE_LOST._value.get() - before[1] == len(chats)
    assert sorted(line["key"] for line in lines) == [key_of(chat) for chat in chats]
    assert {line["event"] for line in lines} == {"lease expired, woken again"}


async def test_a_housekeeper_that_finds_nothing_wrong_says_nothing_and_touches_nothing(
    make_settings: Callable[..., Settings],
) -> None:
    """Keys that wait, run, are delayed or idle in several sweeps; Redis knows all of them."""
    async with open_pipeline(make_settings(sweep_seconds=0.01)) as pipe:
        rig = Rig(pipe)
        for chat in ("awake", "leased", "idle"):
            await rig.accept("hello", chat=chat)
        lease = await rig.lease(key_of("leased"))
        await rig.run_turns(key_of("idle"))
        client: Any = pipe.servers.all[0].client
        before = {name: await client.dump(name) async for name in client.scan_iter("kt:*")}
        keeper, recovered = Housekeeper(pipe), _all_recovered()
        with capture_logs() as lines:
            for _ in range(3):
                for look in (keeper._wake_journal, keeper._wake_outbox, keeper._index):
                    assert await look() >= 0
                for server in pipe.servers.all:
                    assert await keeper._wake_due(server) > 0
                    assert await Tidying(pipe, server).look() == float("inf")
            stopping = asyncio.Event()
            running = asyncio.create_task(keeper.run(stopping))
            await asyncio.sleep(0)
            stopping.set()
            await running
        assert lines == [] and _all_recovered() == recovered
        assert {name: await client.dump(name) async for name in client.scan_iter("kt:*")} == before
        pipe.turns.renewal.let_go(lease)


def _recovered(lane: str, cause: str) -> float:
    return float(metrics.RECOVERED.labels(lane, cause)._value.get())


def _all_recovered() -> dict[tuple[str, str], float]:
    samples = [sample for family in metrics.RECOVERED.collect() for sample in family.samples]
    return {(s.labels["lane"], s.labels["cause"]): s.value for s in samples if s.name.endswith("_total") and s.value}


async def test_a_wake_in_a_queue_that_nobody_serves_is_forgotten_and_made_anew(rig: Rig) -> None:
    await rig.accept("hello")
    server = rig.pipe.servers.of_key(key_of())
    client: Any = server.client
    [job_id] = await client.lrange(f"rq:queue:{queue_of(rig.pipe)}", 0, -1)
    await client.rename(f"rq:queue:{queue_of(rig.pipe)}", "rq:queue:turns-77")
    await client.sadd("rq:queues", "rq:queue:turns-77")
    await Tidying(rig.pipe, server).look()
    assert not await client.exists(JOB_PREFIX + job_id.decode(), "rq:queue:turns-77")
    assert not await client.sismember("rq:queues", "rq:queue:turns-77")
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]
