"""The workers as RQ's registry has them: who is alive, how much each runs, and what it serves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from shared.lane.rq_names import WORKER_PREFIX, WORKERS, WorkerField
from shared.redis_servers import RedisServer, Servers
from shared.value import value

SILENT_SECONDS = 30.0  # workers report every second
MOST = 1000  # workers of one server that are looked at
_SLOTS = re.compile(r"\b(turns|deliveries|control):([0-9]{1,7})/([0-9]{1,7})\b")


@value
class LaneSlots:
    """How much of a lane one worker process runs, and may run at once."""

    lane: str
    used: int
    slots: int


@value
class WorkerState:
    """A worker at its last report. Silent: it has not reported for SILENT_SECONDS; its work is taken over."""

    name: str
    state: str
    running: int
    capacity: int
    failed: int
    queues: tuple[str, ...]
    born: datetime | None
    silent_seconds: float
    lanes: tuple[LaneSlots, ...] = ()  # the lanes that it serves; a process reports the same to each Redis server

    @property
    def alive(self) -> bool:
        return self.silent_seconds <= SILENT_SECONDS


async def all_workers(servers: Servers) -> list[WorkerState]:
    """The workers of all servers by name; Unavailable where a server does not answer that is not drained."""
    return each_once([worker for found in await servers.each(workers_of) for worker in found])


def each_once(found: Iterable[WorkerState]) -> list[WorkerState]:
    """Each process once, by name, as it reported last, with its queues on all servers: every server that it serves knows it."""
    processes: dict[str, WorkerState] = {}
    for worker in sorted(found, key=lambda one: -one.silent_seconds):
        queues = {*worker.queues, *(processes[worker.name].queues if worker.name in processes else ())}
        processes[worker.name] = replace(worker, queues=tuple(sorted(queues)))
    return sorted(processes.values(), key=lambda one: one.name)


async def workers_of(server: RedisServer) -> list[WorkerState]:
    """The workers that one server knows. Those that RQ has not forgotten yet, though they are gone, are left out.

    Workers report by the clock of their Redis server, so their silence is measured by that clock, whatever ours says.
    """
    pipeline = server.client.pipeline(transaction=False)
    pipeline.time()
    pipeline.smembers(WORKERS)
    (seconds, micros), members = await server.asked(pipeline.execute())
    now, names = datetime.fromtimestamp(seconds + micros / 1_000_000, UTC), sorted(members)[:MOST]
    pipeline = server.client.pipeline(transaction=False)
    for name in names:
        pipeline.hgetall(name)
    found = await server.asked(pipeline.execute()) if names else []
    return [_worker(name, fields, now) for name, fields in zip(names, found, strict=True) if fields]


def _worker(name: bytes, fields: dict[bytes, bytes], now: datetime) -> WorkerState:
    def text(field: str) -> str:
        return fields.get(field.encode(), b"").decode(errors="replace")

    beat = _time(text(WorkerField.LAST_HEARTBEAT))
    return WorkerState(
        name=name.decode(errors="replace").removeprefix(WORKER_PREFIX),
        state=text(WorkerField.STATE),
        running=_count(text(WorkerField.RUNNING)),
        capacity=_count(text(WorkerField.CAPACITY)),
        failed=_count(text(WorkerField.FAILED_COUNT)),
        queues=tuple(sorted(text(WorkerField.QUEUES).split(","))),
        born=_time(text(WorkerField.BIRTH)),
        silent_seconds=max(0.0, (now - beat).total_seconds()) if beat is not None else float("inf"),
        lanes=tuple(map(_slots, _SLOTS.findall(text(WorkerField.SLOTS)))),
    )


def _slots(found: tuple[str, str, str]) -> LaneSlots:
    return LaneSlots(found[0], int(found[1]), int(found[2]))


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 15 else 0


def _time(text: str) -> datetime | None:
    """A time as RQ writes it; None for anything else, which a stranger may have put there."""
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
