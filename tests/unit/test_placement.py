"""Where a key lives: processes of different versions share Redis, so they must agree on it."""

from __future__ import annotations

import pytest

from shared import keys
from shared.redis_servers import Servers

SERVERS = ["redis://one:6379/0", "redis://two:6379/0", "redis://three:6379/0"]
# As released. Another place would strand mail that waits at the old one while workers of both versions run.
PARTITIONS = {
    "agent:main:telegram:dm:42": 29,
    "agent:main:slack:channel:T1:C1:t=17": 6,
    "to:discord:99": 25,
    "agent:main:local:dm:Ünï": 2,
}
PLACES = ["three", "two", "one", "two", "one", "three", "three", "three", "two", "one", "one", "two"]


async def places(urls: list[str], partitions: int) -> list[str]:
    servers = Servers(urls, partitions)
    try:
        placed = [servers.of_partition(partition) for partition in range(partitions)]
        listed = {server.url: servers.partitions_of(server) for server in servers.all}
        assert listed == {url: [p for p, server in enumerate(placed) if server.url == url] for url in urls}
        return [server.url for server in placed]
    finally:
        await servers.close()


@pytest.mark.parametrize(("key", "partition"), PARTITIONS.items())
async def test_a_key_has_the_partition_that_it_had_in_the_last_release(key: str, partition: int) -> None:
    assert keys.partition(key, 32) == partition
    servers = Servers(SERVERS, 32)
    assert servers.of_key(key) is servers.of_partition(partition)
    await servers.close()


async def test_a_partition_lives_on_the_server_that_it_had_in_the_last_release() -> None:
    assert await places(SERVERS, len(PLACES)) == [f"redis://{name}:6379/0" for name in PLACES]


async def test_a_new_password_moves_no_partition() -> None:
    changed = [url.replace("redis://", "rediss://user:new@") for url in SERVERS]
    moved = zip(await places(SERVERS, 64), await places(changed, 64), strict=True)
    assert all(SERVERS.index(before) == changed.index(after) for before, after in moved)


async def test_a_further_server_takes_partitions_from_all_and_moves_none_between_the_others() -> None:
    before, after = await places(SERVERS[:2], 64), await places(SERVERS, 64)
    moved = {(old, new) for old, new in zip(before, after, strict=True) if old != new}
    assert moved == {(SERVERS[0], SERVERS[2]), (SERVERS[1], SERVERS[2])}
