"""What an operator sees of a lane, and what he may do to it. Looking changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path

from shared import keys
from shared.lane.lane import Lane
from shared.lane.lease import Waiting
from shared.lane.rq_names import JobField, job_key
from shared.redis_servers import Script, Server
from shared.value import value

FREE = Script.load(Path(__file__).parent / "free.lua")


class Freed(Enum):
    IDLE = 0
    AWAKE = 1
    DELAYED = 2
    LEASED = 3


@value
class KeyState:
    """A key as Redis has it. Times are on Redis' clock; a lease with no time left has expired and waits to be found."""

    lane: str
    key: str
    state: str  # idle, awake (its wake is queued), leased (a worker has it) or delayed (until its next attempt)
    waiting: int  # pieces of mail
    attempts: int = 0
    until: int | None = None  # ms
    left_ms: int | None = None
    job: str | None = None
    worker: str | None = None  # of a leased key, as RQ has it
    since: int | None = None  # ms: when the mail at the head was begun


async def look(lane: Lane, key: str) -> KeyState:
    """How one key stands."""
    [state] = await _look(lane, lane.servers.of_key(key), [key])
    return state


async def restless(lane: Lane, limit: int) -> list[KeyState]:
    """The keys that are not idle, those first whose time comes first."""
    found: list[KeyState] = []
    for server in lane.servers.all:
        names = await server.asked(server.client.zrange(keys.due(lane.name), 0, limit - 1))
        found += await _look(lane, server, [name.decode(errors="replace") for name in names])
    return [state for state in found if state.state != "idle"][:limit]


async def waiting_mail(lane: Lane, key: str, limit: int) -> list[Waiting]:
    """The first pieces of a key's mail, in order."""
    server = lane.servers.of_key(key)
    found = await server.asked(server.client.zrange(keys.mail(lane.name, key), 0, limit - 1, withscores=True))
    return [Waiting(int(score), payload) for payload, score in found if float(score).is_integer()]


async def free(lane: Lane, key: str) -> Freed:
    """Take the key from its holder and wake it. Safe at any time: a holder that goes on is refused by its commit."""
    wake = lane.fresh_wake(key)
    names = [keys.state(lane.name, key), keys.due(lane.name), *wake.keys]
    return Freed(await lane.servers.of_key(key).call(FREE, names, [key, lane.patience_ms, *wake.args]))


async def discard(lane: Lane, key: str, seq: int) -> None:
    """Take one piece of mail out of its mailbox. A journaled one that has not ended comes back: the journal has it."""
    server = lane.servers.of_key(key)
    await server.asked(server.client.zremrangebyscore(keys.mail(lane.name, key), seq, seq))


async def _look(lane: Lane, server: Server, key_list: Sequence[str]) -> list[KeyState]:
    pipeline = server.client.pipeline(transaction=True)
    pipeline.time()
    for key in key_list:
        pipeline.hmget(keys.state(lane.name, key), ["token", "until", "attempts", "job", "since"])
        pipeline.zcard(keys.mail(lane.name, key))
    (seconds, micros), *answers = await server.asked(pipeline.execute())
    now = seconds * 1000 + micros // 1000
    states = [
        _state(lane.name, key, held, waiting, now)
        for key, held, waiting in zip(key_list, answers[::2], answers[1::2], strict=True)
    ]
    return await _with_workers(server, states)


def _state(lane: str, key: str, held: list[bytes | None], waiting: int, now: int) -> KeyState:
    token, until, attempts, job, since = held
    if not any(held):
        return KeyState(lane, key, "idle", waiting)
    name = "leased" if token is not None else "delayed" if until is not None else "awake"
    until_ms = _number(until)
    left_ms = until_ms - now if until_ms is not None else None
    job_id = job.decode(errors="replace") if job else None
    return KeyState(lane, key, name, waiting, _number(attempts) or 0, until_ms, left_ms, job_id, None, _number(since))


def _number(text: bytes | None) -> int | None:
    """What our scripts wrote; None for what they cannot have."""
    return int(text) if text is not None and text.isdigit() else None


async def _with_workers(server: Server, states: list[KeyState]) -> list[KeyState]:
    leased = [state for state in states if state.state == "leased" and state.job is not None]
    if not leased:
        return states
    pipeline = server.client.pipeline(transaction=False)
    for state in leased:
        pipeline.hget(job_key(str(state.job)), JobField.WORKER_NAME)
    names = await server.asked(pipeline.execute())
    workers = {state.key: name.decode(errors="replace") for state, name in zip(leased, names, strict=True) if name}
    return [replace(state, worker=workers.get(state.key)) for state in states]
