"""A reply is delivered by the worker that wrote it down, if that has room; otherwise it waits in a queue for any worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import redis

from shared import keys
from shared.codec import Serializer
from shared.lane_key import CONTROL, DELIVERIES, TURNS
from shared.messages import Part, Receipt
from shared.platforms.facts import Idempotency
from tests.support.pipe import Rig
from workers.delivery.deliver import Deliveries
from workers.process.parts import open_parts
from workers.process.rq_worker import KeyturnWorker
from workers.process.run import open_rooms
from workers.process.wakes import ServedQueue, Wakes


class Collecting:
    """A platform that takes everything."""

    idempotency = Idempotency.NATIVE

    def __init__(self) -> None:
        self.sent: asyncio.Queue[Part] = asyncio.Queue()
        self.free = asyncio.Event()  # until it is set, it answers nobody
        self.free.set()

    async def send(self, part: Part) -> Receipt:
        self.sent.put_nowait(part)
        await self.free.wait()
        return Receipt()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the worker said to each wake that it was offered by itself."""
    start_here, answers = Wakes.start_here, list[bool]()

    def answering(self: Wakes, queue: ServedQueue, job_id: str) -> bool:
        answers.append(start_here(self, queue, job_id))
        return answers[-1]

    monkeypatch.setattr(Wakes, "start_here", answering)
    return answers


@asynccontextmanager
async def working(
    rig: Rig, room: int, lanes: tuple[str, ...] = (TURNS, DELIVERIES, CONTROL), platform: Collecting | None = None
) -> AsyncIterator[Collecting]:
    """A worker on all partitions, with room for so many turns, and for so many deliveries."""
    [server] = rig.pipe.servers.all
    queues = [keys.queue_name(lane, p) for lane in lanes for p in range(rig.pipe.settings.partitions)]
    connection = redis.Redis.from_url(server.url)
    worker = KeyturnWorker(queues, name="taken", connection=connection, serializer=Serializer, prepare_for_work=False)
    worker.hostname, worker.pid = "here", 1
    stopping, platform = asyncio.Event(), platform or Collecting()
    rooms = open_rooms(rig.pipe.settings.model_copy(update={"concurrency": room, "delivery_concurrency": room}))
    async with open_parts(rig.pipe, rig.agent, "taken") as parts, asyncio.timeout(60):
        parts = replace(parts, deliveries=Deliveries(rig.pipe, {"webhook": platform}))
        running = asyncio.create_task(worker.run(parts, server, rooms, stopping))
        try:
            yield platform
        finally:
            stopping.set()
            await running


async def test_a_reply_is_taken_by_the_worker_that_wrote_it(rig: Rig, taken: list[bool]) -> None:
    async with working(rig, room=10) as platform:
        for n in range(5):
            await rig.accept(f"m{n}", chat=f"c{n}")
            assert (await platform.sent.get()).text == f"echo: m{n}"
    assert taken == [True] * 5
    assert await rig.residue() == []


async def test_a_worker_without_room_leaves_the_reply_to_whoever_comes(rig: Rig, taken: list[bool]) -> None:
    platform = Collecting()
    platform.free.clear()
    async with working(rig, room=1, platform=platform):
        for n in range(3):
            await rig.accept(f"m{n}", chat=f"c{n}")
            while len(taken) < n + 1:
                await asyncio.sleep(0.01)
        assert taken == [True, False, False] and platform.sent.qsize() == 1  # the first fills the room
        platform.free.set()
        assert {(await platform.sent.get()).text for _ in range(3)} == {"echo: m0", "echo: m1", "echo: m2"}
    assert await rig.residue() == []


async def test_a_worker_for_turns_alone_takes_no_deliveries(rig: Rig, taken: list[bool]) -> None:
    async with working(rig, room=10, lanes=(TURNS,)):
        await rig.accept("m")
        async with asyncio.timeout(60):
            while await rig.pipe.deliveries.awake(["to:webhook:c1"]) != [True]:
                await asyncio.sleep(0.01)
    assert taken == []
    async with working(rig, room=10, lanes=(DELIVERIES,)) as platform:
        assert (await platform.sent.get()).text == "echo: m"
