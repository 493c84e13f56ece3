"""What the housekeeper finds after workers died."""

from __future__ import annotations

from typing import Any

from shared import keys
from tests.support.pipe import Rig, key_of
from workers.housekeeper import Housekeeper


async def test_a_dead_worker_leaves_nothing_in_rqs_registries(rig: Rig) -> None:
    await rig.accept("hello")
    lease = await rig.lease()
    client: Any = rig.pipe.servers.of_key(key_of()).client
    queue = keys.queue_name("turns", keys.partition(key_of(), rig.pipe.turns.partitions))
    await client.sadd("rq:workers", "rq:worker:dead")
    await client.sadd(f"rq:workers:{queue}", "rq:worker:dead")
    [entry] = await client.zrange(f"rq:wip:{queue}", 0, -1)
    await client.zadd(f"rq:wip:{queue}", {entry: 1})  # its heartbeat ended long ago
    await Housekeeper(rig.pipe)._sweep()
    assert await client.zcard(f"rq:wip:{queue}") == 0
    assert await client.hget(f"rq:job:{lease.running.id}", "status") == b"failed"
    assert await client.ttl(f"rq:job:{lease.running.id}") > 0
    assert await client.zscore(f"rq:failed:{queue}", lease.running.id) is not None
    assert await client.exists(f"rq:execution:{lease.running.id}:{lease.running.execution}") == 0
    assert await client.smembers("rq:workers") == await client.smembers(f"rq:workers:{queue}") == set()
