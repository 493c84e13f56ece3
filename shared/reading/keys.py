"""Keys as Redis has them: which are not idle, who holds each, how much mail waits, and one key's mailbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum

from shared import keys
from shared.clock import moment
from shared.errors import Unavailable
from shared.lane.lane import Lane
from shared.lane.lease import Waiting
from shared.lane.pausing import parked_keys
from shared.lane.rq_names import JobField, job_key
from shared.pipeline import Pipeline
from shared.redis_servers import RedisServer
from shared.value import value


class KeyPhase(StrEnum):
    """Where a key is on its way: nothing waits, its wake is queued, a worker holds it, it waits for its next attempt, or a
    pause holds it."""

    IDLE = "idle"
    AWAKE = "awake"
    LEASED = "leased"
    DELAYED = "delayed"
    PAUSED = "paused"


@value
class KeyState:
    """A key as Redis has it. Times are on Redis' clock; a lease with no time left has expired and waits to be found."""

    lane: str
    key: str
    state: KeyPhase
    waiting: int  # pieces of mail
    attempts: int = 0
    until: datetime | None = None  # the end of the lease or of the delay
    left_ms: int | None = None  # from now to `until`
    job: str | None = None
    worker: str | None = None  # the holder of a leased key, as RQ names it
    since: datetime | None = None  # when the first piece of mail was begun
    paused: str | None = None  # the scope of the pause that holds it


async def state_of_key(lane: Lane, key: str) -> KeyState:
    """How one key stands. A key that nobody has heard of is idle."""
    [state] = await states_of_keys(lane, [key])
    return state


async def states_of_keys(lane: Lane, key_list: Sequence[str]) -> list[KeyState]:
    """How several keys stand, in one round trip for each server. A key that leaves a server which is drained stands as it does
    there, until nothing of it is left there; one that does not answer is not looked at."""
    by_server: dict[RedisServer, list[str]] = {}
    for key in key_list:
        for server in lane.servers.may_have(key):
            by_server.setdefault(server, []).append(key)
    found: dict[str, list[KeyState]] = {}
    for server, names in by_server.items():
        try:
            for state in await _states(lane, server, names):
                found.setdefault(state.key, []).append(state)
        except Unavailable:
            if server not in lane.servers.draining:
                raise
    return [_whole(states) for states in found.values()]


def _whole(states: Sequence[KeyState]) -> KeyState:
    """One key's state from those at each server that has something of it."""
    at_work = [state for state in states if state.state is not KeyPhase.IDLE] or states
    first = next((state for state in at_work if state.state is KeyPhase.LEASED), at_work[0])
    return replace(first, waiting=sum(state.waiting for state in states))


async def keys_at_work(lane: Lane, limit: int) -> list[KeyState]:
    """The keys of a lane that are not idle: those first whose time comes first, then those that a pause holds. Unavailable where
    a server does not answer that is not drained."""

    async def at(server: RedisServer) -> list[KeyState]:
        names = await server.asked(server.client.zrange(keys.due(lane.name), 0, limit - 1))
        paused = await parked_keys(lane, server, max(0, limit - len(names)))
        return await _states(lane, server, [*(name.decode(errors="replace") for name in names), *paused])

    found = [state for states in await lane.servers.each(at) for state in states]
    return [state for state in found if state.state is not KeyPhase.IDLE][:limit]


async def all_keys_at_work(pipe: Pipeline, limit: int) -> list[KeyState]:
    """The keys of every lane that are not idle."""
    found = [state for lane in pipe.lanes for state in await keys_at_work(lane, limit)]
    return found[:limit]


async def first_mail(lane: Lane, key: str, limit: int) -> list[Waiting]:
    """The first pieces of a key's mail, in order."""
    found: dict[Waiting, None] = {}
    for server in lane.servers.may_have(key):
        asked = server.client.zrange(keys.mail(lane.name, key), 0, limit - 1, withscores=True)
        try:
            waiting = await server.asked(asked)
        except Unavailable:
            if server in lane.servers.draining:
                continue
            raise
        found |= {Waiting(int(score), payload): None for payload, score in waiting if float(score).is_integer()}
    return sorted(found, key=lambda waiting: waiting.seq)[:limit]


async def _states(lane: Lane, server: RedisServer, key_list: Sequence[str]) -> list[KeyState]:
    pipeline = server.client.pipeline(transaction=True)
    pipeline.time()
    for key in key_list:
        pipeline.hmget(keys.state(lane.name, key), ["token", "until", "attempts", "job", "since", "paused"])
        pipeline.zcard(keys.mail(lane.name, key))
    (seconds, micros), *answers = await server.asked(pipeline.execute())
    now = seconds * 1000 + micros // 1000
    states = [
        _state(lane.name, key, held, waiting, now)
        for key, held, waiting in zip(key_list, answers[::2], answers[1::2], strict=True)
    ]
    return await _with_workers(server, states)


def _state(lane: str, key: str, held: list[bytes | None], waiting: int, now: int) -> KeyState:
    token, until, attempts, job, since, paused = held
    if not any(held):
        return KeyState(lane, key, KeyPhase.IDLE, waiting)
    until_ms, since_ms = _number(until), _number(since)
    return KeyState(
        lane,
        key,
        _phase(token, until, paused),
        waiting,
        attempts=_number(attempts) or 0,
        until=moment(until_ms) if until_ms is not None else None,
        left_ms=until_ms - now if until_ms is not None else None,
        job=job.decode(errors="replace") if job else None,
        since=moment(since_ms) if since_ms is not None else None,
        paused=paused.decode(errors="replace") if paused else None,
    )


def _phase(token: bytes | None, until: bytes | None, paused: bytes | None) -> KeyPhase:
    if token is not None:
        return KeyPhase.LEASED
    if until is not None:
        return KeyPhase.DELAYED
    return KeyPhase.AWAKE if paused is None else KeyPhase.PAUSED


def _number(text: bytes | None) -> int | None:
    """A number that our scripts wrote; None for anything else, which a stranger may have put there."""
    return int(text) if text is not None and text.isdigit() and len(text) < 15 else None


async def _with_workers(server: RedisServer, states: list[KeyState]) -> list[KeyState]:
    leased = [state for state in states if state.state is KeyPhase.LEASED and state.job is not None]
    if not leased:
        return states
    pipeline = server.client.pipeline(transaction=False)
    for state in leased:
        pipeline.hget(job_key(str(state.job)), JobField.WORKER_NAME)
    names = await server.asked(pipeline.execute())
    workers = {state.key: name.decode(errors="replace") for state, name in zip(leased, names, strict=True) if name}
    return [replace(state, worker=workers.get(state.key)) for state in states]
