"""A lane: for each key a mailbox, a lease and a wake.

put        mail in; an idle key gets a wake on its partition's RQ queue
start      a worker begins a wake and claims the key: lease and first mail in one call
lease      acknowledge (next mail, hand over, or idle), release (now or delayed); renewed in the background
recover    the housekeeper wakes keys whose lease, delay or wake has gone

After a crash at any point the mail is still in the mailbox or, after a loss of Redis, in the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from shared import keys, metrics
from shared.background import end_tasks, survived
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.ids import fresh_id
from shared.lane.garbage import Garbled, purge, readable
from shared.lane.lease import Lease, unpack_mail
from shared.lane.rq_names import (
    EXECUTION_PREFIX,
    EXECUTIONS_PREFIX,
    FAILURE_TTL_SECONDS,
    JOB_PREFIX,
    popped_key,
    queue_key,
    registry_keys,
    time_text,
)
from shared.lane.wake import FreshWake, StartedWake, WakeTemplate
from shared.redis_servers import Script, Server, Servers

_HERE = Path(__file__).parent
PUT, START, FINISH, RENEW, RECOVER, REQUEUE, ABANDON = (
    Script.load(_HERE / f"{name}.lua") for name in ("put", "start", "finish", "renew", "recover", "requeue", "abandon")
)
SOON = timedelta(seconds=5)  # shorter delays end to the moment; for others a housekeeper looks twice a second
CLOCK_SECONDS = 0.005  # Redis counts in milliseconds, and who comes too early has come for nothing
RENEW_AT_ONCE = 200  # leases per call: keeps a call well below a millisecond of Redis' time


class Put(Enum):
    WOKEN = 1
    WAITING = 0
    SEEN = -1
    FULL = -2


class Recovered(Enum):
    NOTHING = 0
    DELAY_ENDED = 1
    LEASE_EXPIRED = 2
    WAKE_LOST = 3
    WAKE_LATE = 4


class Claim(Enum):
    GONE = -1
    IDLE = 0
    HELD = 1
    LEASED = 2


class Lane:
    def __init__(
        self, servers: Servers, wakes: WakeTemplate, *, lease: timedelta, renew_every: timedelta, partitions: int
    ) -> None:
        self.name = wakes.lane
        self.servers = servers
        self.wakes = wakes
        self.partitions = partitions
        self.lease_ms = int(lease.total_seconds() * 1000)
        self.patience_ms = self.lease_ms  # how long a queued wake is trusted before somebody looks for it
        self._renew_every = renew_every
        self._held: dict[str, Lease] = {}
        self._renewer: asyncio.Task[None] | None = None
        self._waking: set[asyncio.Task[None]] = set()
        self.takers: dict[str, Callable[[str], bool]] = {}  # by queue: who here takes a wake, if there is room

    async def put(
        self, key: str, seq: int, payload: bytes, *, limit: int = 10**9, seen: str = "", seen_ttl_s: int = 0
    ) -> Put:
        """Add mail and wake the key if it is idle. Safe to repeat. With seq 0 the mailbox gives the number."""
        return Put(await self.putting(key, seq, payload, limit=limit, seen=seen, seen_ttl_s=seen_ttl_s))

    def putting(
        self,
        key: str,
        seq: int,
        payload: bytes,
        *,
        limit: int = 10**9,
        seen: str = "",
        seen_ttl_s: int = 0,
        here: bool = False,
    ) -> asyncio.Future[int]:
        """The same, under way: it travels with what else this tick of the event loop sends. `here`: if the key gets a
        wake and this process has room for it, it need not wait to be popped."""
        partition = keys.partition(key, self.partitions)
        wake = self.wakes.make(key, partition)
        names = [*self._names(key), keys.seen(seen), *wake.keys]
        if here and (take := self.takers.get(wake.queue)) is not None and take(wake.id):
            names.append(popped_key(wake.queue))
        args = [key, seq, payload, limit, seen_ttl_s, self.patience_ms, *wake.args]
        return self.servers.of_partition(partition).call(PUT, names, args)

    async def start(
        self,
        server: Server,
        queue: str,
        job_id: str,
        *,
        worker_key: str,
        worker_name: str,
        heartbeat_ttl_s: int,
        limit: int,
    ) -> tuple[Claim, bytes, Lease | StartedWake | None]:
        """Start a popped wake and claim its key. Gives the job's data, and the lease, or the job alone to be finished."""
        running = StartedWake(job_id, fresh_id(), worker_key, worker_name, queue, datetime.now(UTC))
        token = fresh_id()
        names = [running.job_key, popped_key(queue), running.running_key, running.execution_key]
        names += [running.executions_key, keys.due(self.name)]
        now_s = running.started.timestamp()
        args = [job_id, running.execution, worker_name, time_text(running.started), now_s, heartbeat_ttl_s, token]
        args += [self.lease_ms, limit, keys.mail(self.name, ""), keys.state(self.name, "")]
        answer = await server.call(START, names, args)
        claim = Claim(answer[0])
        if claim is Claim.GONE:
            return claim, b"", None
        if claim is not Claim.LEASED:
            return claim, answer[1], running
        key, attempts, begun, failed = answer[2].decode(), answer[3], bool(answer[4]), answer[5]
        try:
            mail = unpack_mail(answer[8:])
        except Garbled:  # the lease that this call took runs out
            await purge(self, key)
            raise
        lease = Lease(self, server, key, token, running, attempts=attempts, begun=begun, failed=failed, mail=mail)
        lease.stop_ms = answer[6]
        lease.outage_began(answer[7])
        self.hold(lease)
        return claim, answer[1], lease

    async def finish(self, server: Server, running: StartedWake, result_ttl_s: int) -> None:
        """End a wake that has no lease."""
        await server.call(FINISH, running.finish_keys(), running.finish_args(result_ttl_s))

    async def due(self, server: Server, at_most: int, *, skip: int = 0) -> tuple[list[str], float]:
        """Keys whose time has come, after the first `skip`, and how many seconds until the next one comes."""
        seconds, micros = await server.asked(server.client.time())
        now = seconds * 1000 + micros // 1000
        pipeline = server.client.pipeline(transaction=False)
        pipeline.zrange(keys.due(self.name), "-inf", now, byscore=True, offset=skip, num=at_most)
        pipeline.zrange(keys.due(self.name), f"({now}", "+inf", byscore=True, offset=0, num=1, withscores=True)
        late, nexts = await server.asked(pipeline.execute())
        return await readable(self, server, late), (nexts[0][1] - now) / 1000 if nexts else float("inf")

    async def recover(self, key: str) -> Recovered:
        """Wake the key if its lease or delay has ended or its wake is lost. Several may call it at once."""
        partition = keys.partition(key, self.partitions)
        wake = self.wakes.make(key, partition)
        names = [*self._names(key), *wake.keys]
        args = [key, self.patience_ms, JOB_PREFIX, *wake.args]
        reach("housekeep.before_recover")
        return Recovered(await self.servers.of_partition(partition).call(RECOVER, names, args))

    async def requeue(self, server: Server, queue: str, job_ids: Sequence[str | bytes]) -> int:
        """Put popped but never started wakes back to the front of their queue."""
        return int(await server.call(REQUEUE, [popped_key(queue), queue_key(queue)], job_ids))

    async def abandon(self, server: Server, queue: str, at_most: int) -> int:
        """Give up jobs whose worker died, for RQ's readers, and forget those that ended long ago; see `recover` for keys."""
        prefixes = [JOB_PREFIX, EXECUTION_PREFIX, EXECUTIONS_PREFIX]
        return int(await server.call(ABANDON, registry_keys(queue), [FAILURE_TTL_SECONDS, *prefixes, at_most]))

    async def awake(self, key_list: Sequence[str]) -> list[bool]:
        """For each key, whether Redis knows of it. A server that does not answer is taken to know all of its keys."""
        pipelines: dict[Server, Any] = {}
        for key in key_list:
            server = self.servers.of_key(key)
            if server not in pipelines:
                pipelines[server] = (server.client.pipeline(transaction=False), [])
            pipeline, asked = pipelines[server]
            pipeline.exists(keys.state(self.name, key))
            asked.append(key)
        known: dict[str, bool] = {}
        for server, (pipeline, asked) in pipelines.items():
            with suppress(Unavailable):
                known.update(zip(asked, map(bool, await server.asked(pipeline.execute())), strict=True))
        return [known.get(key, True) for key in key_list]

    def fresh_wake(self, key: str) -> FreshWake:
        """A wake for the key, for the scripts that may need one."""
        return self.wakes.make(key, keys.partition(key, self.partitions))

    def hold(self, lease: Lease) -> None:
        """Renew it from now on."""
        self._held[lease.token] = lease
        if self._renewer is None or self._renewer.done():
            self._renewer = asyncio.create_task(self._renew_held())

    def let_go(self, lease: Lease) -> None:
        self._held.pop(lease.token, None)

    def wake_after(self, key: str, delay: timedelta) -> None:
        """Wake the key when a short delay of it ends. If this process is gone by then, a housekeeper does it."""
        if timedelta(0) < delay <= SOON:
            task = asyncio.create_task(self._wake_after(key, delay))
            self._waking.add(task)
            task.add_done_callback(self._waking.discard)

    async def close(self) -> None:
        await end_tasks(*self._waking, *([self._renewer] if self._renewer is not None else []))

    async def _wake_after(self, key: str, delay: timedelta) -> None:
        await asyncio.sleep(delay.total_seconds() + CLOCK_SECONDS)
        try:
            await self.recover(key)
        except Exception as error:  # a housekeeper will do it
            survived("wake", "key not woken after its delay", error, lane=self.name, key=key)

    async def _renew_held(self) -> None:
        """One task renews every lease of this process, so a turn costs no timer of its own."""
        while True:
            await asyncio.sleep(self._renew_every.total_seconds())
            by_server: dict[Server, list[Lease]] = {}
            for lease in self._held.values():
                by_server.setdefault(lease.server, []).append(lease)
            for server, leases in by_server.items():
                for start in range(0, len(leases), RENEW_AT_ONCE):
                    try:
                        await self._renew(server, leases[start : start + RENEW_AT_ONCE])
                    except Exception as error:  # the turns go on: commits are checked by the database, not by Redis
                        survived("renew", "leases not renewed", error, lane=self.name)

    async def _renew(self, server: Server, leases: Sequence[Lease]) -> None:
        leases = [lease for lease in leases if lease.token in self._held]  # some may have ended since they were listed
        names = [keys.due(self.name)]
        for lease in leases:
            names += [keys.state(self.name, lease.key), lease.running.job_key]
        args = [self.lease_ms, *(item for lease in leases for item in (lease.token, lease.key))]
        reach("renew.before")
        for lease, renewed in zip(leases, await server.call(RENEW, names, args), strict=True):
            if lease.token not in self._held:
                continue
            if not renewed:
                metrics.LEASE_LOST.inc()
                lease.lose()
            elif renewed > 1:
                lease.stop(renewed)

    def _names(self, key: str) -> list[str]:
        return [keys.mail(self.name, key), keys.state(self.name, key), keys.due(self.name)]
