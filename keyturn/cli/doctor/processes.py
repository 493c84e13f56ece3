"""Who is at work: live workers for every queue, and signs of a housekeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta

import redis

from keyturn.cli.doctor.finding import Finding, counted, fail, ok, redacted, warn
from shared import keys
from shared.errors import PipelineError
from shared.lane.rq_names import queue_key
from shared.lane_key import CONTROL, DELIVERIES, TURNS
from shared.pipeline import open_pipeline
from shared.reading.overview import BOUND, BoundedCount, stored_now
from shared.reading.signs import no_housekeeper, sign_age
from shared.reading.workers import workers_of
from shared.redis_servers import RedisServer, Servers
from shared.settings import Settings
from shared.value import value

LANES = (TURNS, DELIVERIES, CONTROL)
ANSWER_SECONDS = 5.0
SILENT_SECONDS = 30.0  # workers report every second
OVERDUE_SECONDS = 5.0  # a housekeeper looks twice a second
START_HOUSEKEEPER = "start `keyturn housekeep`; two are enough for any deployment"
AT_MOST = 500
PAUSES_NAMED = 5


@value
class Worker:
    """A worker as RQ has it."""

    name: str
    queues: frozenset[str]
    silent_seconds: float


async def check_processes(servers: Servers, server: RedisServer) -> list[Finding]:
    """What this server knows of those who should serve it."""
    place = redacted(server.url)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            workers = await _workers(server)
            depths = await _depths(server, servers.partitions_of(server))
            overdue = await _overdue(server)
            sign = sign_age(await server.client.pttl(keys.HOUSEKEEPER))
    except (PipelineError, redis.RedisError, OSError, TimeoutError) as error:
        return [fail(f"workers {place}", f"cannot be read: {type(error).__name__}", "look at this server's log")]
    return [*worker_findings(place, workers, depths), housekeeper_finding(place, overdue, sign)]


def worker_findings(place: str, workers: Sequence[Worker], depths: dict[str, int]) -> Iterable[Finding]:
    """`depths` names every queue that this server should have, with the wakes waiting in it."""
    name = f"workers {place}"
    alive = [worker for worker in workers if worker.silent_seconds <= SILENT_SECONDS]
    served = frozenset[str]().union(*(worker.queues for worker in alive))
    if foreign := sorted(_ours(served) - set(depths)):
        fix = "give every process the same KEYTURN_PARTITIONS and the same KEYTURN_REDIS_URL, in any order"
        yield fail(name, f"they serve queues that these settings do not have: {', '.join(foreign[:8])}", fix)
    unserved = sorted(set(depths) - served)
    if not unserved:
        yield ok(name, f"{len(alive)} alive, every queue is served")
    else:
        waiting = sum(depths[queue] for queue in unserved)
        who = "no worker is alive" if not alive else f"{len(alive)} alive, but nobody serves {', '.join(unserved[:8])}"
        fix = "start `keyturn work`, without --only or once for each lane"
        yield (fail if waiting else warn)(name, f"{who}; {counted(waiting, 'wake is', 'wakes are')} waiting there", fix)
    if len(alive) < len(workers):
        fix = "nothing, if they were killed: RQ forgets them within minutes"
        silent = counted(len(workers) - len(alive), "worker has", "workers have")
        yield warn(name, f"{silent} been silent for {SILENT_SECONDS:.0f} s", fix)


def housekeeper_finding(place: str, overdue: int, sign: timedelta | None) -> Finding:
    """By what a housekeeper leaves undone, and by how long ago it left its sign of life."""
    name = f"housekeeper {place}"
    if overdue:
        detail = f"{counted(overdue, 'key has', 'keys have')} been due for more than {OVERDUE_SECONDS:.0f} s"
        return fail(name, detail, START_HOUSEKEEPER)
    if (gone := no_housekeeper(sign)) is not None:
        return warn(
            name, f"{gone[:1].lower()}{gone[1:]}: delays and what a crash leaves behind end late", START_HOUSEKEEPER
        )
    return ok(name, "at work, nothing is overdue")


async def check_backlog(settings: Settings) -> Finding:
    """What waits. Mail that the journal has and Redis does not is the housekeeper's to wake."""
    overdue_after_ms = int((settings.sweep_seconds + OVERDUE_SECONDS) * 1000)
    try:
        async with open_pipeline(settings) as pipe:
            waiting = await pipe.store.journal.waiting_keys(after="", older_than_ms=overdue_after_ms, limit=AT_MOST)
            asleep = sum([(await pipe.lane_of(key).awake([key])).count(False) for key in waiting])
            found = await stored_now(pipe)
    except (PipelineError, redis.RedisError, OSError) as error:
        return fail("backlog", f"cannot be read: {type(error).__name__}", "see the checks above")
    if asleep:
        lost = counted(
            asleep, "key waits in the journal, and Redis has lost it", "keys wait in the journal, and Redis lost them"
        )
        return fail("backlog", lost, "start `keyturn housekeep`")
    waiting = f"{_bounded(found.messages, 'message', 'messages')} and {_bounded(found.replies, 'reply', 'replies')}"
    if found.dead_letters.count:
        letters = _bounded(found.dead_letters, "dead letter is", "dead letters are")
        return warn("backlog", f"{waiting} waiting, {letters} open", "see `keyturn dead list`")
    return ok("backlog", f"{waiting} waiting, no dead letter is open")


async def check_closed_chats(settings: Settings) -> list[Finding]:
    """Whether chats take nothing from us any more. Nothing to say where none does."""
    try:
        async with open_pipeline(settings) as pipe:
            closed = await pipe.store.closed_chats.count()
    except (PipelineError, OSError) as error:
        return [fail("closed chats", f"cannot be read: {type(error).__name__}", "see the checks above")]
    if not closed:
        return []
    what = counted(closed, "chat takes nothing from us any more", "chats take nothing from us any more")
    return [warn("closed chats", what, "see `keyturn deliveries list`; a message from there opens a chat again")]


async def check_pauses(settings: Settings) -> list[Finding]:
    """Whether somebody holds something back. Nothing to say where nobody does."""
    try:
        async with open_pipeline(settings) as pipe:
            scopes = [row["scope"] for row in (await pipe.store.pauses.now()).rows]
    except (PipelineError, OSError) as error:
        return [fail("pauses", f"cannot be read: {type(error).__name__}", "see the checks above")]
    if not scopes:
        return []
    named = ", ".join(scopes[:PAUSES_NAMED]) + (", …" if len(scopes) > PAUSES_NAMED else "")
    what = f"{counted(len(scopes), 'pause is', 'pauses are')} in force: {named}"
    return [warn("pauses", what, "see `keyturn keys pauses`; `keyturn keys resume SCOPE` ends one")]


def _bounded(found: BoundedCount, one: str, many: str) -> str:
    return counted(found.count, one, many) if found.count <= BOUND else f"{found.text} {many}"


async def _workers(server: RedisServer) -> list[Worker]:
    return [Worker(one.name, frozenset(one.queues), one.silent_seconds) for one in await workers_of(server)]


async def _depths(server: RedisServer, partitions: Iterable[int]) -> dict[str, int]:
    queues = [keys.queue_name(lane, partition) for lane in LANES for partition in partitions]
    return {queue: int(await server.client.llen(queue_key(queue))) for queue in queues}


async def _overdue(server: RedisServer) -> int:
    seconds, _ = await server.client.time()
    latest = int((seconds - OVERDUE_SECONDS) * 1000)
    return sum([int(await server.client.zcount(keys.due(lane), "-inf", latest)) for lane in LANES])


def _ours(queues: Iterable[str]) -> set[str]:
    return {queue for queue in queues if queue.rpartition("-")[0] in LANES}
