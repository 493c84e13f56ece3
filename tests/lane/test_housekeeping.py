"""What the housekeeper finds after workers died, what it leaves alone, and what it says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from shared import keys, metrics
from shared.lane.rq_names import JOB_PREFIX
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.store.books import ask, indexed_rows, write
from tests.support.pipe import Rig, key_of
from tests.support.working import keeping, working
from workers.upkeep import housekeeper, runs, stuck
from workers.upkeep.due import DueKeys
from workers.upkeep.housekeeper import Housekeeper, duties, repeat
from workers.upkeep.journal import UnknownMail
from workers.upkeep.outbox import UnknownReplies
from workers.upkeep.rq_leftovers import RqLeftovers
from workers.upkeep.stuck import StuckWakes

WAIT_SECONDS = 60
LASTING = re.compile(
    "rq:(queues|clean_registries.*|workers|workers:.+|worker:.+)|kt:housekeeper"
)  # of processes that live


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
    await RqLeftovers(rig.pipe, server).look()
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
    await RqLeftovers(rig.pipe, server).look()
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


async def test_leftover_runs_are_looked_for_again_soon_while_as_many_were_found_as_are_deleted_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "AT_ONCE", 2)
    columns = "id, session_id, session_key, inbound_id, holder, state, counted, created_at"
    for n in range(3):
        insert = f"INSERT INTO runs ({columns}) VALUES (:id, 's', 'k', 'in_1', '', 'parked', 0, 5)"
        await write(rig.pipe.store, insert, id=f"run_{n}")
    duty, left = runs.LeftoverRuns(rig.pipe), []
    for next_look in (1.0, runs.EVERY_SECONDS, runs.EVERY_SECONDS):
        assert await duty.look() == next_look
        left.append(len(await ask(rig.pipe.store, "SELECT id FROM runs")))
    assert left == [1, 0, 0]


async def test_a_look_that_does_not_end_is_cut_short_and_the_next_one_begins(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeper, "LOOK_LIMIT_SECONDS", 0.1)

    class NeverEnds:
        every_seconds = 0.01
        began = 0

        async def look(self) -> float:
            self.began += 1
            await asyncio.Event().wait()
            return 0.0

    stopping, duty = asyncio.Event(), NeverEnds()
    with capture_logs() as lines:
        repeating = asyncio.create_task(repeat(duty, stopping))

        async def again() -> bool:
            return duty.began > 2

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
    async with open_pipeline(make_settings(sweep_seconds=0.01, lease_seconds=600)) as pipe:  # no renewal meanwhile
        rig = Rig(pipe)
        for chat in ("awake", "leased", "idle"):
            await rig.accept("hello", chat=chat)
        lease = await rig.lease(key_of("leased"))
        await rig.run_turns(key_of("idle"))
        client: Any = pipe.servers.all[0].client

        async def held() -> dict[bytes, bytes]:
            """All but the housekeeper's sign of life."""
            names = [name async for name in client.scan_iter("kt:*") if name != keys.HOUSEKEEPER.encode()]
            return {name: await client.dump(name) for name in names}

        before = await held()
        recovered = _all_recovered()
        with capture_logs() as lines:
            for duty in duties(pipe):
                for _ in range(3):
                    assert 0 < await duty.look() <= duty.every_seconds
            stopping = asyncio.Event()
            running = asyncio.create_task(Housekeeper(pipe).run(stopping))
            await asyncio.sleep(0)
            stopping.set()
            await running
        assert lines == [] and _all_recovered() == recovered
        assert await held() == before
        pipe.turns.renewal.let_go(lease)


def _recovered(lane: str, cause: str) -> float:
    return float(metrics.RECOVERED.labels(lane, cause)._value.get())


def _all_recovered() -> dict[tuple[str, str], float]:
    samples = [sample for family in metrics.RECOVERED.collect() for sample in family.samples]
    return {(s.labels["lane"], s.labels["cause"]): s.value for s in samples if s.name.endswith("_total") and s.value}


async def test_a_running_housekeeper_does_each_of_its_duties(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck, "STUCK_SECONDS", 0.01)
    async with open_pipeline(make_settings(sweep_seconds=0.02)) as pipe:
        rig, client = Rig(pipe), pipe.servers.all[0].client
        await rig.accept("hello", chat="answered")
        await rig.run_turns(key_of("answered"))
        await rig.accept("hello", chat="waiting")
        await client.flushall()  # Redis knows of nothing
        await rig.accept("hello", chat="expired")
        pipe.turns.renewal.let_go(await rig.lease(key_of("expired")))
        await rig.expire_lease(pipe.turns, key_of("expired"))
        popped: Any = f"rq:queue:{queue_of(pipe)}:intermediate"
        await client.rpush(popped, "stuck")

        async def done() -> bool:
            return (
                (await pipe.turns.awake([key_of("waiting")]))[0]
                and (await pipe.deliveries.awake(["to:webhook:answered"]))[0]
                and not await client.exists(popped)
                and not await client.hexists(keys.state("turns", key_of("expired")), "token")
                and len(await indexed_rows(pipe.store)) == 2
            )

        async with keeping(pipe):
            await until(done)


async def test_a_popped_wake_is_put_back_when_its_time_is_over_and_one_that_comes_again_has_its_time_anew(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(stuck, "time", SimpleNamespace(monotonic=lambda: now))
    server, queue = rig.pipe.servers.of_key(key_of()), queue_of(rig.pipe)
    client: Any = server.client
    duty, popped, waiting = StuckWakes(rig.pipe, server), f"rq:queue:{queue}:intermediate", f"rq:queue:{queue}"
    await client.rpush(popped, "one", "two")
    await duty.look()
    await client.lrem(popped, 1, "two")  # it was started
    now += stuck.STUCK_SECONDS
    await duty.look()
    assert await client.lrange(popped, 0, -1) == [b"one"]  # not a moment too early
    await client.rpush(popped, "two")
    now += 0.001
    await duty.look()
    assert await client.lrange(popped, 0, -1) == [b"two"] and await client.lrange(waiting, 0, -1) == [b"one"]
    now += stuck.STUCK_SECONDS + 0.001
    await duty.look()
    assert await client.exists(popped) == 0 and await client.lrange(waiting, 0, -1) == [b"two", b"one"]


async def test_a_wake_in_a_queue_that_nobody_serves_is_forgotten_and_made_anew(rig: Rig) -> None:
    await rig.accept("hello")
    server = rig.pipe.servers.of_key(key_of())
    client: Any = server.client
    [job_id] = await client.lrange(f"rq:queue:{queue_of(rig.pipe)}", 0, -1)
    await client.rename(f"rq:queue:{queue_of(rig.pipe)}", "rq:queue:turns-77")
    await client.sadd("rq:queues", "rq:queue:turns-77")
    await RqLeftovers(rig.pipe, server).look()
    assert not await client.exists(JOB_PREFIX + job_id.decode(), "rq:queue:turns-77")
    assert not await client.sismember("rq:queues", "rq:queue:turns-77")
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]


async def test_a_wake_that_was_popped_and_never_started_goes_back_to_its_queue(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.accept("hello")
    assert await rig.pop(rig.pipe.turns, key_of()) is not None
    duty, before = StuckWakes(rig.pipe, rig.pipe.servers.of_key(key_of())), _recovered("turns", "never_started")
    await duty.look()
    assert await rig.pop(rig.pipe.turns, key_of()) is None  # it may only be slow
    monkeypatch.setattr(stuck, "STUCK_SECONDS", 0.0)
    await duty.look()
    assert _recovered("turns", "never_started") - before == 1
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]


async def test_mail_that_redis_lost_is_put_into_its_mailbox_at_the_second_look(rig: Rig) -> None:
    """At the first it may still be on its way."""
    await rig.accept("hello")
    await rig.pipe.servers.all[0].client.flushall()
    duty = UnknownMail(rig.pipe)
    await duty.look()
    assert await rig.pipe.turns.awake([key_of()]) == [False]
    await duty.look()
    assert await rig.pipe.turns.awake([key_of()]) == [True]
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]


async def test_a_reply_that_nobody_published_is_published_at_the_second_look(rig: Rig) -> None:
    await rig.accept("hello")
    await rig.run_turns()
    await rig.pipe.servers.all[0].client.flushall()
    [(destination, _)] = await rig.pipe.store.outbox.waiting_destinations(after="", limit=2)
    duty = UnknownReplies(rig.pipe)
    await duty.look()
    assert await rig.pipe.deliveries.awake([destination]) == [False]
    await duty.look()
    assert await rig.pipe.deliveries.awake([destination]) == [True]


async def test_due_keys_are_looked_at_again_as_soon_as_the_next_one_is_due(rig: Rig) -> None:
    await rig.accept("hello")
    server = rig.pipe.servers.of_key(key_of())
    duty, client = DueKeys(rig.pipe, server), cast(Any, server.client)
    assert await duty.look() == duty.every_seconds
    seconds, _ = await client.time()
    await client.zadd(keys.due("turns"), {key_of(): 1000 * (seconds + 1800)})
    duty.every_seconds = 3600
    assert 0 < await duty.look() <= 1800
