"""A lane on a real Valkey, worked by hand: no database, no worker, and nothing expires unless a test says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from shared import keys
from shared.lane import Admission, Claim, Lane, Lease, Put, Started
from shared.lane.rq_names import JOB_PREFIX, popped_key, queue_key
from shared.lane.wake import RegisteredWorker, WakeTemplate
from shared.redis_servers import RedisServer, Servers

LEASE = timedelta(minutes=10)
NEVER = timedelta(days=1)
WORKER = "rq:worker:test"
WAKES = WakeTemplate("workers.jobs.take_turns", "turns", timeout_s=600, result_ttl_s=60)


@dataclass(frozen=True)
class Look:
    """One key: its mail by number, its state, and how many seconds until the housekeeper looks at it."""

    mail: list[int]
    state: dict[str, str]
    due: float | None


class Workbench:
    def __init__(self, redis_url: str) -> None:
        self.servers = Servers([redis_url], 1)
        self.lane = Lane(self.servers, WAKES, lease=LEASE, renew_every=NEVER, partitions=1)

    @property
    def server(self) -> RedisServer:
        return self.servers.all[0]

    @property
    def client(self) -> Any:
        return self.server.client

    async def close(self) -> None:
        await self.lane.close()
        await self.servers.close()

    # -- what a worker does

    async def put(self, key: str, seq: int, payload: bytes | None = None, **options: Any) -> Put:
        payload = payload if payload is not None else f"m{seq}".encode()
        return await self.lane.put(key, seq, payload, Admission(**options))

    async def put_popped(self, key: str, seq: int, *, room: bool = True) -> tuple[Put, str]:
        """Put mail as a worker does that starts the key's wake itself if it has room. Also gives the wake's id."""
        wake = self.lane.fresh_wake(key)
        return Put(await self.lane.put_soon(key, seq, f"m{seq}".encode(), wake, popped=room)), wake.id

    async def pop(self) -> str | None:
        """The next wake, moved to the intermediate list as a worker's BLMOVE does."""
        found = await self.client.lmove(QUEUE, INTERMEDIATE, "LEFT", "RIGHT")
        return found.decode() if found is not None else None

    async def start_job(self, job_id: str, limit: int = 1) -> Started:
        worker = RegisteredWorker(self.server, "test", WORKER, heartbeat_ttl_s=30)
        return await self.lane.start(worker, "turns-0", job_id, limit=limit)

    async def start(self, limit: int = 1) -> tuple[Claim, Lease | None]:
        """Pop the next wake and start it."""
        job_id = await self.pop()
        assert job_id is not None, "no wake is waiting"
        started = await self.start_job(job_id, limit)
        return started.claim, started.lease

    async def lease(self, limit: int = 1) -> Lease:
        """Start the next wake, whose key must be free."""
        claim, lease = await self.start(limit)
        assert claim is Claim.LEASED and lease is not None
        return lease

    async def renew(self, *leases: Lease) -> None:
        """What the lane does by itself every few seconds."""
        await self.lane.renewal.renew(self.server, leases)

    # -- what time and accidents do

    async def expire(self, key: str) -> None:
        """As if the lease or the delay of a key had run out, if it has one."""
        if await self.client.hexists(state(key), "until"):
            await self.client.hset(state(key), "until", 1)
        await self.hurry(key)

    async def hurry(self, key: str) -> None:
        """As if the time to look at a key had come, if such a time was set."""
        await self.client.zadd(DUE, {key: 1}, xx=True)

    # -- what there is

    async def state(self, key: str) -> Mapping[str, str]:
        found = await self.client.hgetall(state(key))
        return {name.decode(): value.decode() for name, value in found.items()}

    async def mail(self, key: str) -> list[tuple[int, bytes]]:
        found = await self.client.zrange(keys.mail("turns", key), 0, -1, withscores=True)
        return [(int(score), payload) for payload, score in found]

    async def queued(self) -> list[str]:
        return [job_id.decode() for job_id in await self.client.lrange(QUEUE, 0, -1)]

    async def popped(self) -> list[str]:
        return [job_id.decode() for job_id in await self.client.lrange(INTERMEDIATE, 0, -1)]

    async def status(self, job_id: str) -> str | None:
        found = await self.client.hget(JOB_PREFIX + job_id, "status")
        return found.decode() if found is not None else None

    async def due(self, key: str) -> float | None:
        """When the housekeeper will look at a key: seconds from now, by Redis' clock."""
        seconds, micros = await self.client.time()
        score = await self.client.zscore(DUE, key)
        return score / 1000 - seconds - micros / 1e6 if score is not None else None

    async def look(self, key_list: Sequence[str]) -> list[Look]:
        """All of that for several keys, in one round trip."""
        pipeline = self.client.pipeline(transaction=True)
        pipeline.time()
        for key in key_list:
            pipeline.zrange(keys.mail("turns", key), 0, -1, withscores=True)
            pipeline.hgetall(state(key))
            pipeline.zscore(DUE, key)
        (seconds, micros), *found = await pipeline.execute()
        now = seconds + micros / 1e6
        return [
            Look(
                [int(score) for _, score in mail],
                {name.decode(): value.decode() for name, value in held.items()},
                score / 1000 - now if score is not None else None,
            )
            for mail, held, score in zip(found[::3], found[1::3], found[2::3], strict=True)
        ]

    async def residue(self) -> list[str]:
        """What our own names are left."""
        return sorted([name.decode() async for name in self.client.scan_iter("kt:*")])


QUEUE = queue_key("turns-0")
INTERMEDIATE = popped_key("turns-0")
DUE = keys.due("turns")


def state(key: str) -> str:
    return keys.state("turns", key)
