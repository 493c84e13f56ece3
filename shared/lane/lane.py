"""A lane: for each key a mailbox, a lease and a wake.

put        mail in; an idle key gets a wake on its partition's RQ queue
start      a worker begins a wake and claims the key: lease and first mail in one call
lease      acknowledge (next mail, hand over, or idle), release (now or delayed); renewed in the background
recover    the housekeeper wakes keys whose lease, delay or wake has gone
pausing.py a key whose mail a pause holds is parked by start and acknowledge, and woken when the pause ends

After a crash at any point the mail is still in the mailbox or, after a loss of Redis, in the journal.

Attempts are counted in the key's state, for one piece of mail: `of` is its seq, `attempts` how many attempts at it began,
`failed` how many of those are known to have failed. Where more began than failed, a worker may have died with it.

| script      | when                                          | of       | attempts | failed  |
|-------------|-----------------------------------------------|----------|----------|---------|
| start       | claims mail that was not counted yet          | its seq  | 1        | 0       |
| start       | claims mail that was counted before           | as it is | as it is | as it is|
| attempt     | a further attempt at that mail begins         | as it is | +1       | as it is|
| attempt     | an attempt at other mail begins               | its seq  | 1        | 0       |
| acknowledge | the next mail is claimed under the same lease | its seq  | 1        | 0       |
| acknowledge | nothing waits, handed over, or parked         | removed  | removed  | removed |
| release     | the attempt failed (1)                        | as it is | as it is | +1      |
| release     | something failed before an attempt began (+)  | as it is | +1       | +1      |
| release     | the attempt does not count (0, w)             | as it is | -1       | as it is|
| release     | no attempt began, nothing failed (-)          | as it is | as it is | as it is|
| free        | an operator takes the key from its holder     | as it is | -1       | as it is|
| renew       | Redis had lost the state of a running turn    | none     | 1        | none    |
| recover     | nothing waits; likewise start and leave       | removed  | removed  | removed |

Failed attempts are also written to the journal row (`journal.count_attempt`), where a loss of Redis cannot forget them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from shared import keys
from shared.background import end_tasks, survived
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.ids import fresh_id
from shared.lane.garbage import Garbled, purge, readable
from shared.lane.lease import Claimed, Counts, Lease, unpack_mail
from shared.lane.outcomes import UNLIMITED, Admission, Claim, Put, Recovered, Started
from shared.lane.renewal import Renewal
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
from shared.lane.wake import FreshWake, RegisteredWorker, StartedWake, WakeTemplate
from shared.redis_servers import RedisServer, Script, Servers

_HERE = Path(__file__).parent
PUT, START, FINISH, RECOVER, REQUEUE, ABANDON = (
    Script.load(_HERE / f"{name}.lua") for name in ("put", "start", "finish", "recover", "requeue", "abandon")
)
SOON = timedelta(seconds=5)  # shorter delays end to the moment; for others a housekeeper looks twice a second
CLOCK_SECONDS = 0.005  # wake slightly late: Redis rounds to milliseconds and ignores an early wake


class Lane:
    """The keys of one kind, on all Redis servers. Every call may be repeated; Unavailable says that Redis did not answer."""

    def __init__(
        self, servers: Servers, wakes: WakeTemplate, *, lease: timedelta, renew_every: timedelta, partitions: int
    ) -> None:
        self.name = wakes.lane
        self.servers = servers
        self.partitions = partitions
        self.lease_ms = int(lease.total_seconds() * 1000)
        self.recheck_wake_after_ms = self.lease_ms  # a queued wake is trusted for so long; then somebody looks for it
        self.result_ttl_s = wakes.result_ttl_s
        self.renewal = Renewal(self.name, self.lease_ms, renew_every)
        self._wakes = wakes
        self._waking: set[asyncio.Task[None]] = set()

    async def put(self, key: str, seq: int, payload: bytes, admission: Admission = UNLIMITED) -> Put:
        """Add mail and wake the key if it is idle. With seq 0 the mailbox gives the number."""
        if admission.seen_ttl_s and await self._seen_at_old_place(key, admission.seen):
            return Put.SEEN
        return Put(await self._put(key, seq, payload, admission, self.fresh_wake(key)))

    def put_soon(self, key: str, seq: int, payload: bytes, wake: FreshWake, *, popped: bool) -> asyncio.Future[int]:
        """The same, under way: it travels with what else this tick of the event loop sends.

        `wake` is the one that the key gets if it is idle. With `popped` it is queued as if the caller had popped it at
        once; the caller then starts it, in the same tick if it likes, and finds it gone if the key needed none.
        """
        return self._put(key, seq, payload, UNLIMITED, wake, popped)

    def _put(
        self, key: str, seq: int, payload: bytes, admission: Admission, wake: FreshWake, popped: bool = False
    ) -> asyncio.Future[int]:
        names = [*self._names(key), keys.seen(admission.seen), *wake.keys]
        if popped:
            names.append(popped_key(wake.queue))
        args = [key, seq, payload, admission.limit, admission.seen_ttl_s, self.recheck_wake_after_ms, *wake.args]
        return self.servers.of_partition(wake.partition).call(PUT, names, args)

    async def start(self, by: RegisteredWorker, queue: str, job_id: str, *, limit: int) -> Started:
        """Start a popped wake and claim its key with at most `limit` pieces of mail. A wake without a lease is the
        caller's to `finish`."""
        wake = StartedWake(job_id, fresh_id(), queue, time.time(), by)
        token = fresh_id()
        names = [wake.job_key, popped_key(queue), wake.running_key, wake.execution_key, wake.executions_key]
        names += [keys.due(self.name), keys.PAUSES, keys.parked(self.name)]
        args = [job_id, wake.execution, by.name, time_text(wake.started), wake.started, by.heartbeat_ttl_s]
        args += [token, self.lease_ms, limit, keys.mail(self.name, ""), keys.state(self.name, ""), self.name]
        answer = await by.server.call(START, names, args)
        claim = Claim(answer[0])
        if claim is Claim.GONE:
            return Started(claim)
        if claim is not Claim.LEASED:
            return Started(claim, wake, answer[1])
        _, data, key, begun, ours_begun, failed, drop_until_ms, outage_ms, *flat = answer
        try:
            mail = unpack_mail(flat)
        except Garbled:  # the lease that this call took runs out
            await purge(self, key.decode())
            raise
        outage_since = time.monotonic() - outage_ms / 1000 if outage_ms >= 0 else None
        counts = Counts(mail[0].seq, begun, failed, bool(ours_begun), outage_since)
        lease = Lease(self, Claimed(key.decode(), token, wake, mail, counts, drop_until_ms))
        self.renewal.hold(lease)
        return Started(claim, wake, data, lease)

    async def finish(self, wake: StartedWake) -> None:
        """End a wake that has no lease."""
        await wake.by.server.call(FINISH, wake.finish_keys(), wake.finish_args(self.result_ttl_s))

    async def due(self, server: RedisServer, at_most: int, *, skip: int = 0) -> tuple[list[str], float]:
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
        wake = self.fresh_wake(key)
        names = [*self._names(key), *wake.keys]
        args = [key, self.recheck_wake_after_ms, JOB_PREFIX, *wake.args]
        reach("housekeep.before_recover")
        return Recovered(await self.servers.of_partition(wake.partition).call(RECOVER, names, args))

    async def requeue(self, server: RedisServer, queue: str, job_ids: Sequence[str | bytes]) -> int:
        """Put popped but never started wakes back to the front of their queue."""
        return int(await server.call(REQUEUE, [popped_key(queue), queue_key(queue)], job_ids))

    async def abandon(self, server: RedisServer, queue: str, at_most: int) -> int:
        """Give up jobs whose worker died, for RQ's readers, and forget those that ended long ago; see `recover` for keys."""
        prefixes = [JOB_PREFIX, EXECUTION_PREFIX, EXECUTIONS_PREFIX]
        return int(await server.call(ABANDON, registry_keys(queue), [FAILURE_TTL_SECONDS, *prefixes, at_most]))

    async def awake(self, key_list: Sequence[str]) -> list[bool]:
        """For each key, whether Redis knows of it. A server that does not answer is taken to know all of its keys, unless it is
        drained."""
        by_server: dict[RedisServer, list[str]] = {}
        for key in key_list:
            for server in self.servers.may_have(key):
                by_server.setdefault(server, []).append(key)
        awake: set[str] = set()
        for server, asked in by_server.items():
            pipeline = server.client.pipeline(transaction=False)
            for key in asked:
                pipeline.exists(keys.state(self.name, key))
            try:
                known = await server.asked(pipeline.execute())
            except Unavailable:
                known = [self.servers.of_key(key) is server for key in asked]
            awake.update(key for key, is_known in zip(asked, known, strict=True) if is_known)
        return [key in awake for key in key_list]

    def fresh_wake(self, key: str) -> FreshWake:
        """A wake for the key, for the scripts that may need one."""
        return self._wakes.make(key, keys.partition(key, self.partitions))

    def wake_after(self, key: str, delay: timedelta) -> None:
        """Wake the key when a short delay of it ends. If this process is gone by then, a housekeeper does it."""
        if timedelta(0) < delay <= SOON:
            task = asyncio.create_task(self._wake_after(key, delay))
            self._waking.add(task)
            task.add_done_callback(self._waking.discard)

    async def close(self) -> None:
        """End the timers of short delays and the renewals. Keys that wait are woken by a housekeeper; leases run out."""
        await end_tasks(*self._waking)
        await self.renewal.close()

    async def _wake_after(self, key: str, delay: timedelta) -> None:
        await asyncio.sleep(delay.total_seconds() + CLOCK_SECONDS)
        try:
            await self.recover(key)
        except Exception as error:  # a housekeeper will do it
            survived("wake", "key not woken after its delay", error, lane=self.name, key=key)

    async def _seen_at_old_place(self, key: str, seen: str) -> bool:
        """Whether a server that the key leaves remembers this message. One that does not answer remembers none."""
        for server in self.servers.leaving(key):
            with suppress(Unavailable):
                if await server.asked(server.client.exists(keys.seen(seen))):
                    return True
        return False

    def _names(self, key: str) -> list[str]:
        return [keys.mail(self.name, key), keys.state(self.name, key), keys.due(self.name)]
