"""A popped wake in the hands of a worker: whatever becomes of its job, the key goes on and the slot is free again."""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shared import keys
from shared.agent.turn import Result, Turn
from shared.codec import Serializer
from shared.errors import Unavailable
from shared.lane.rq_names import (
    EXECUTION_PREFIX,
    JobField,
    WorkerField,
    failed_key,
    job_key,
    popped_key,
    queue_key,
    results_key,
    running_key,
)
from shared.lane.wake import RegisteredWorker
from shared.pipeline import JOBS
from tests.support.pipe import Rig, key_of
from tests.support.servers import Databases
from workers.agents.results import answered
from workers.jobs import ALLOWED
from workers.process.duty import Duty
from workers.process.parts import open_parts
from workers.process.room import Room
from workers.process.wakes import ServedQueue, Wakes

SECONDS = 60


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


class Patient:
    """An agent that answers when it is told to."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.attempts: list[int] = []

    async def run(self, turn: Turn) -> Result:
        self.attempts.append(turn.attempt)
        self.begun.set()
        await self.go.wait()
        return answered("done")


class Hands:
    """A worker's wakes, started by hand, with one slot."""

    def __init__(self, rig: Rig, wakes: Wakes, agent: Patient) -> None:
        self.rig, self.wakes, self.agent = rig, wakes, agent
        lane, key = rig.pipe.turns, key_of()
        name = keys.queue_name(lane.name, keys.partition(key, lane.partitions))
        self.queue = ServedQueue(name, lane, Room(1))
        self.client: Any = rig.pipe.servers.of_key(key).client

    async def popped(self) -> str:
        """The wake of a message that has just come."""
        await self.rig.accept("hello")
        job_id = await self.rig.pop(self.queue.lane, key_of())
        assert job_id is not None
        return job_id

    def start(self, job_id: str | bytes) -> None:
        slot = self.queue.room.take()
        assert slot is not None
        self.wakes.start(self.queue, job_id if isinstance(job_id, bytes) else job_id.encode(), slot)

    async def over(self) -> None:
        """Wait for the end of the wake. Then its slot is free, and it is held no longer."""
        async with asyncio.timeout(SECONDS):
            while self.wakes._tasks:
                await asyncio.wait(self.wakes._tasks)
        slot = self.queue.room.take()
        assert slot is not None and self.wakes.held == {}
        slot.leave()

    async def state(self) -> dict[str, str]:
        found = await self.client.hgetall(keys.state("turns", key_of()))
        return {name.decode(): value.decode() for name, value in found.items()}

    async def job(self, job_id: str) -> dict[str, str]:
        found = await self.client.hgetall(job_key(job_id))
        fields = {name.decode(errors="replace"): value for name, value in found.items()}
        return {name: value.decode() for name, value in fields.items() if name != JobField.DATA}

    async def waiting(self) -> list[bytes]:
        found: list[bytes] = await self.client.lrange(queue_key(self.queue.name), 0, -1)
        return found

    async def seized(self) -> list[bytes]:
        """What lies in the intermediate list."""
        found: list[bytes] = await self.client.lrange(popped_key(self.queue.name), 0, -1)
        return found

    async def reason(self, job_id: str) -> str:
        """Why the job failed, as RQ's readers see it."""
        [(_, result)] = await self.client.xrange(results_key(job_id))
        return zlib.decompress(base64.b64decode(result[b"exc_string"])).decode()

    async def failed(self) -> list[bytes]:
        found: list[bytes] = await self.client.zrange(failed_key(self.queue.name), 0, -1)
        return found


@pytest.fixture
async def hands(rig: Rig) -> AsyncIterator[Hands]:
    agent = Patient()
    async with open_parts(rig.pipe, agent, "test") as parts:
        worker = RegisteredWorker(rig.pipe.servers.of_key(key_of()), "test", "rq:worker:test", heartbeat_ttl_s=30)
        wakes = Wakes(parts, worker, Duty(asyncio.Event()))
        yield Hands(rig, wakes, agent)
        agent.go.set()
        await wakes.drain(0)


def the_job_raises(monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]) -> None:
    async def job(*_: Any) -> None:
        raise error()

    monkeypatch.setitem(ALLOWED, JOBS["turns"], job)


async def test_a_wake_runs_its_job_and_ends_with_it(hands: Hands) -> None:
    hands.agent.go.set()
    job_id = await hands.popped()
    hands.start(job_id)
    await hands.over()
    assert await hands.rig.transcript() == ["hello", "done"]
    assert (await hands.job(job_id))[JobField.STATUS] == "finished"
    assert await hands.state() == {} and await hands.seized() == [] and await hands.failed() == []


async def test_a_wake_is_held_while_its_job_runs(hands: Hands) -> None:
    job_id = await hands.popped()
    hands.start(job_id)
    await hands.agent.begun.wait()
    assert [held.lease.key for held in hands.wakes.held.values()] == [key_of()] and [*hands.wakes.held] == [job_id]
    assert hands.queue.room.take() is None
    hands.agent.go.set()
    await hands.over()


async def test_a_worker_that_was_told_to_stop_puts_a_popped_wake_back(hands: Hands) -> None:
    hands.wakes.duty.suspended = True
    job_id = await hands.popped()
    hands.start(job_id)
    await hands.over()
    assert await hands.waiting() == [job_id.encode()] and await hands.seized() == []
    assert hands.agent.attempts == []


async def test_a_wake_is_started_here_only_while_there_is_room_and_the_worker_takes_any(hands: Hands) -> None:
    job_id = await hands.popped()
    hands.wakes.duty.suspended = True
    assert not hands.wakes.start_here(hands.queue, job_id)
    hands.wakes.duty.suspended = False
    slot = hands.queue.room.take()
    assert slot is not None
    assert not hands.wakes.start_here(hands.queue, job_id)
    slot.leave()
    hands.agent.go.set()
    assert hands.wakes.start_here(hands.queue, job_id)
    await hands.over()
    assert await hands.rig.transcript() == ["hello", "done"]


async def test_an_id_that_is_no_text_is_removed_and_nothing_is_run(hands: Hands) -> None:
    await hands.client.rpush(popped_key(hands.queue.name), b"\xff\xfe", b"other")
    hands.start(b"\xff\xfe")
    await hands.over()
    assert await hands.seized() == [b"other"] and await hands.waiting() == []


async def test_a_wake_that_redis_forgot_leaves_nothing(hands: Hands) -> None:
    hands.start("unknown")
    await hands.over()
    assert not await hands.client.exists(job_key("unknown")) and await hands.failed() == []


async def test_a_wake_that_finds_its_key_held_by_another_is_spent(hands: Hands) -> None:
    job_id = await hands.popped()
    lease = await hands.rig.start_job(hands.queue.lane, key_of(), job_id)
    await hands.client.hset(job_key("second"), mapping=await hands.client.hgetall(job_key(job_id)))
    hands.start("second")
    await hands.over()
    assert (await hands.job("second"))[JobField.STATUS] == "finished"
    assert lease.lease is not None and (await hands.state())["token"] == lease.lease.token
    assert hands.agent.attempts == []


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (["os.system", None, ["ls"], {}], "function 'os.system' is not allowed on turns"),
        ([JOBS["deliveries"], None, [key_of()], {}], "is not allowed on turns"),
        ([JOBS["turns"], None, ["agent:main:webhook:dm:other"], {}], "arguments do not match the key"),
        ([JOBS["turns"], "instance", [key_of()], {}], "job data is not a wake"),
    ],
)
async def test_a_forged_job_is_recorded_as_failed_and_its_key_goes_on(
    hands: Hands, call: list[Any], reason: str
) -> None:
    job_id = await hands.popped()
    await hands.client.hset(job_key(job_id), JobField.DATA, zlib.compress(Serializer.dumps(call)))
    hands.start(job_id)
    await hands.over()
    assert hands.agent.attempts == [] and await hands.failed() == [job_id.encode()]
    found = await hands.reason(job_id)
    assert found.startswith("refused: ") and reason in found
    [fresh] = await hands.waiting()
    state = await hands.state()
    assert state["job"] == fresh.decode() != job_id and "token" not in state
    assert state.get("attempts", "0") == "0"  # nobody tried


async def test_an_error_that_nobody_foresaw_is_seen_by_rq_and_counts_against_the_message(
    hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await hands.popped()
    the_job_raises(monkeypatch, lambda: ZeroDivisionError("oh"))
    await hands.client.hset("rq:worker:test", WorkerField.BIRTH, "now")
    hands.start(job_id)
    await hands.over()
    job = await hands.job(job_id)
    assert job[JobField.STATUS] == "failed" and job[JobField.ENDED_AT]
    assert await hands.failed() == [job_id.encode()]
    assert await hands.reason(job_id) == "ZeroDivisionError: oh"
    assert await hands.client.ttl(job_key(job_id)) > 0 and await hands.client.ttl(results_key(job_id)) > 0
    assert await hands.client.hget("rq:worker:test", WorkerField.FAILED_COUNT) == b"1"
    assert float(await hands.client.hget("rq:worker:test", WorkerField.WORKING_TIME)) >= 0
    state = await hands.state()
    assert (state["attempts"], state["failed"]) == ("1", "1")
    assert "token" not in state and "until" in state and await hands.waiting() == []
    left = [name async for name in hands.client.scan_iter(f"{EXECUTION_PREFIX[:-1]}*")]
    assert left == [] and await hands.client.zcard(running_key(hands.queue.name)) == 0


async def test_a_store_that_is_away_puts_a_key_off_and_spends_nothing(
    hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await hands.popped()
    the_job_raises(monkeypatch, lambda: Unavailable("away"))
    hands.start(job_id)
    await hands.over()
    state = await hands.state()
    assert state.get("attempts", "0") == "0" and "token" not in state
    assert "until" in state and await hands.failed() == []


async def test_draining_lets_a_turn_end_within_its_time(hands: Hands) -> None:
    hands.start(await hands.popped())
    await hands.agent.begun.wait()
    hands.wakes.duty.stopping.set()
    draining = asyncio.create_task(hands.wakes.drain(SECONDS))
    hands.agent.go.set()
    await asyncio.wait_for(draining, SECONDS)
    assert await hands.rig.transcript() == ["hello", "done"]


async def test_draining_gives_back_what_takes_longer_and_spends_nothing(hands: Hands) -> None:
    hands.start(await hands.popped())
    await hands.agent.begun.wait()
    hands.wakes.duty.stopping.set()
    await asyncio.wait_for(hands.wakes.drain(0), SECONDS)
    await hands.over()
    state = await hands.state()
    assert state["attempts"] == "0" and "token" not in state and "until" not in state
    assert await hands.waiting() == [state["job"].encode()]
    assert await hands.rig.transcript() == []


async def test_nothing_runs_and_draining_ends_at_once(hands: Hands) -> None:
    await asyncio.wait_for(hands.wakes.drain(3600), SECONDS)


async def test_a_job_that_an_operator_stops_counts_and_no_other_is_stopped(hands: Hands) -> None:
    job_id = await hands.popped()
    hands.start(job_id)
    await hands.agent.begun.wait()
    hands.wakes.kill("another")
    hands.wakes.drop_until("another", 2**60)
    assert job_id in hands.wakes.held
    hands.wakes.kill(job_id)
    await hands.over()
    state = await hands.state()
    assert (state["attempts"], state["failed"]) == ("1", "1") and "token" not in state


async def test_a_user_stops_the_turn_that_runs_under_a_wake(hands: Hands) -> None:
    job_id = await hands.popped()
    hands.start(job_id)
    await hands.agent.begun.wait()
    hands.wakes.drop_until(job_id, 2**60)
    await hands.over()
    said, stopped = await hands.rig.transcript()
    assert said == "hello" and "stopped" in stopped


async def test_a_turn_whose_key_another_worker_has_ends_and_leaves_the_key_alone(hands: Hands) -> None:
    job_id = await hands.popped()
    hands.start(job_id)
    await hands.agent.begun.wait()
    await hands.client.hset(keys.state("turns", key_of()), "token", "another")
    hands.wakes.held[job_id].lease.lose()
    await hands.over()
    assert (await hands.state())["token"] == "another"
    assert (await hands.job(job_id))[JobField.STATUS] == "finished"
    assert await hands.rig.transcript() == []
