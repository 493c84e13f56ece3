"""How a worker pops its wakes: from both ends in turn, with a slot at hand, and whatever happens to its connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from shared import keys
from shared.lane import Lane
from shared.lane.rq_names import popped_key, queue_key
from shared.redis_servers import Servers
from workers.process import fetcher as fetching
from workers.process.duty import Duty
from workers.process.fetcher import Fetcher, end_fetching
from workers.process.room import Room, Slot
from workers.process.wakes import ServedQueue, Wakes

QUEUE = keys.queue_name("turns", 0)
SECONDS = 60


class Taken:
    """What becomes of popped wakes: they are started, or put back where they were."""

    def __init__(self, client: Any) -> None:
        self.duty = Duty(asyncio.Event())
        self.started: list[bytes] = []
        self.slots: list[Slot] = []
        self.put: list[bytes] = []
        self._client = client

    def start(self, _: ServedQueue, popped: bytes, slot: Slot) -> None:
        self.started.append(popped)
        self.slots.append(slot)

    async def put_back(self, _: ServedQueue, popped: bytes) -> None:
        self.put.append(popped)
        await self._client.lrem(popped_key(QUEUE), 1, popped)
        await self._client.lpush(queue_key(QUEUE), popped)


class Bench:
    """A fetcher of one queue on a real server."""

    def __init__(self, url: str, slots: int) -> None:
        self.servers = Servers([url], 1)
        self.client: Any = self.servers.all[0].client
        self.room, self.wakes = Room(slots), Taken(self.client)
        queue = ServedQueue(QUEUE, cast(Lane, None), self.room)
        self.fetcher = Fetcher(self.servers.all[0], queue, cast(Wakes, self.wakes))
        self.running: asyncio.Task[None] | None = None

    def run(self) -> None:
        self.running = asyncio.create_task(self.fetcher.run())

    async def queue(self, *ids: bytes) -> None:
        await self.client.rpush(queue_key(QUEUE), *ids)

    async def waiting(self) -> list[bytes]:
        found: list[bytes] = await self.client.lrange(queue_key(QUEUE), 0, -1)
        return found

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not true():
                await asyncio.sleep(0.002)

    async def close(self) -> None:
        self.wakes.duty.stopping.set()
        self.room.dismiss()
        if self.running is not None:
            await end_fetching([self.fetcher], [self.running])
        await self.servers.close()


@pytest.fixture(params=[100])
async def bench(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Bench]:
    opened = Bench(redis_url, request.param)
    yield opened
    await opened.close()


one_slot = pytest.mark.parametrize("bench", [1], indirect=True)


async def test_the_oldest_and_the_newest_wake_are_taken_in_turn_and_lie_where_rq_finds_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pop, pops = bench.fetcher._pop, list[Any]()

    async def noted(commands: Any, *about: Any) -> bytes | None:
        pops.append(commands)
        return await pop(commands, *about)

    monkeypatch.setattr(bench.fetcher, "_pop", noted)
    await bench.queue(*(b"w%d" % n for n in range(5)))
    bench.run()
    await bench.until(lambda: len(bench.wakes.started) == 5)
    assert all(commands is bench.fetcher._wait for commands in pops)  # with room for more, one round trip brings a wake
    assert bench.wakes.started == [b"w0", b"w4", b"w1", b"w3", b"w2"]
    assert await bench.client.lrange(popped_key(QUEUE), 0, -1) == bench.wakes.started
    assert bench.room.running == 5


@one_slot
async def test_wakes_for_which_there_is_no_slot_stay_in_their_queue_and_each_slot_that_is_free_brings_one(
    bench: Bench,
) -> None:
    await bench.queue(b"w0", b"w1", b"w2")
    bench.run()
    left = [[b"w1", b"w2"], [b"w1"], []]
    for n, order in enumerate((b"w0", b"w2", b"w1")):
        await bench.until(lambda n=n: len(bench.wakes.started) == n + 1 and bench.room._waiting)  # type: ignore[misc]
        assert bench.wakes.started[n] == order and await bench.waiting() == left[n]
        bench.wakes.slots[n].leave()
    assert bench.wakes.put == []


@one_slot
async def test_a_look_that_found_nothing_gives_its_slot_on_and_then_waits_for_the_next_wake(bench: Bench) -> None:
    [slot] = [bench.room.take()]
    assert slot is not None
    bench.run()
    await bench.until(lambda: bench.room._waiting)
    slot.leave()
    await bench.until(lambda: bench.room.is_open)
    again = bench.room.take()
    assert again is not None
    again.leave()
    await bench.queue(b"w0")
    await bench.until(lambda: bench.wakes.started == [b"w0"])


@one_slot
async def test_a_wake_that_comes_when_the_last_slot_has_just_gone_is_put_back(bench: Bench) -> None:
    bench.run()
    await bench.until(lambda: bench.fetcher._client_id is not None)
    slot = bench.room.take()
    assert slot is not None
    await bench.queue(b"w0")
    await bench.until(lambda: bench.wakes.put == [b"w0"])
    slot.leave()
    await bench.until(lambda: bench.wakes.started == [b"w0"])


@one_slot
async def test_a_wake_whose_slot_others_have_by_now_is_put_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, kept = Slot.keep, list[bool]()

    def late(slot: Slot) -> bool:
        kept.append(bool(kept) and keep(slot))
        if not kept[-1]:
            slot.leave()
        return kept[-1]

    monkeypatch.setattr(Slot, "keep", late)
    slot = bench.room.take()
    assert slot is not None
    bench.run()
    await bench.queue(b"w0")
    await bench.until(lambda: bench.room._waiting)
    slot.leave()
    await bench.until(lambda: bench.wakes.started == [b"w0"])
    assert bench.wakes.put == [b"w0"]


@pytest.mark.parametrize("bench", [1, 100], indirect=True)
async def test_a_connection_that_breaks_costs_no_slot_and_no_wake(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "RETRY_SECONDS", 0.01)
    slot = bench.room.take()
    assert slot is not None
    if bench.room.slots > 1:
        slot.leave()
    bench.run()
    if bench.room.slots > 1:
        await bench.until(lambda: bench.fetcher._client_id is not None)
        await bench.client.client_kill_filter(_id=bench.fetcher._client_id)
    else:  # it breaks at the first look, with a slot in its hands
        await bench.until(lambda: bench.room._waiting)
        pop, broken = bench.fetcher._pop, list[bool]()

        async def breaking(*about: Any) -> bytes | None:
            if not broken:
                broken.append(True)
                raise ConnectionError
            return await pop(*about)

        monkeypatch.setattr(bench.fetcher, "_pop", breaking)
        slot.leave()
        await bench.until(lambda: broken)
    await bench.queue(b"w0")
    await bench.until(lambda: bench.wakes.started == [b"w0"])
    assert bench.room.running == 1 and len(bench.room._reserved) == 0


async def test_while_the_workers_are_suspended_nothing_is_taken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    async def looking(_: float) -> None:
        nonlocal looked
        looked += 1
        await sleep(0)

    sleep = asyncio.sleep
    monkeypatch.setattr("workers.process.fetcher.asyncio.sleep", looking)
    bench.wakes.duty.suspended = True
    await bench.queue(b"w0")
    bench.run()
    async with asyncio.timeout(SECONDS):
        while looked < 5:
            await sleep(0.002)
    assert bench.wakes.started == [] and await bench.waiting() == [b"w0"]
    bench.wakes.duty.suspended = False
    async with asyncio.timeout(SECONDS):
        while bench.wakes.started != [b"w0"]:
            await sleep(0.002)


@one_slot
async def test_a_worker_that_stops_takes_nothing_more_and_its_fetchers_end_at_once(bench: Bench) -> None:
    slot = bench.room.take()
    assert slot is not None
    bench.run()
    await bench.until(lambda: bench.room._waiting)
    await bench.queue(b"w0")
    bench.wakes.duty.stopping.set()
    bench.room.dismiss()
    assert bench.running is not None
    async with asyncio.timeout(SECONDS):
        await bench.running
    assert bench.wakes.started == [] and await bench.waiting() == [b"w0"]
    slot.leave()
    assert bench.room.is_open and not bench.room._reserved


async def test_a_fetcher_that_waits_at_its_queue_is_woken_when_the_worker_stops(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run()
    await bench.until(lambda: bench.fetcher._client_id is not None)
    bench.wakes.duty.stopping.set()
    woken, unblock = list[object](), bench.client.client_unblock

    async def noted(id: int) -> Any:
        woken.append(await unblock(id))
        return woken[-1]

    monkeypatch.setattr(bench.client, "client_unblock", noted)
    assert bench.running is not None
    await end_fetching([bench.fetcher], [bench.running])
    assert bench.running.done() and woken
