"""What producers hold for each other: changed by one at a time, and gone after its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from producers.hold import MOST_LOCAL, HeldValue, ShortHold
from producers.pieces import Pieces
from shared.messages import Inbound, Source
from shared.redis_servers import Servers

MINUTE = timedelta(minutes=1)
NOWHERE = "redis://127.0.0.1:9/0"


@pytest.fixture
async def servers(redis_url: str) -> AsyncIterator[Servers]:
    opened = Servers([redis_url], 1)
    yield opened
    await opened.close()


@pytest.fixture
async def away() -> AsyncIterator[Servers]:
    opened = Servers([NOWHERE], 1)
    yield opened
    await opened.close()


async def test_of_two_that_found_the_same_one_changes_it_and_the_other_is_told(servers: Servers) -> None:
    one, other = ShortHold(servers), ShortHold(servers)
    found = await one.find("kt:pieces:x")
    assert found == await other.find("kt:pieces:x") == HeldValue(b"", b"")
    assert await one.replace("kt:pieces:x", found, b"first", MINUTE)
    assert not await other.replace("kt:pieces:x", found, b"second", MINUTE)
    again = await other.find("kt:pieces:x")
    assert again == HeldValue(b"first", b"")
    assert 0 < await servers.all[0].client.pttl("kt:pieces:x") <= 60_000
    assert await other.replace("kt:pieces:x", again, b"", MINUTE)
    assert not await servers.all[0].client.exists("kt:pieces:x")


async def test_while_redis_is_away_a_process_keeps_so_many_values_and_each_for_its_time(away: Servers) -> None:
    hold = ShortHold(away)
    for n in range(MOST_LOCAL + 1):
        found = await hold.find(f"kt:pieces:{n}")
        assert await hold.replace(f"kt:pieces:{n}", found, b"kept", MINUTE)
    assert await hold.find("kt:pieces:0") == HeldValue(None, b"")
    assert await hold.find("kt:pieces:1") == HeldValue(None, b"kept")
    await hold.replace("kt:pieces:1", HeldValue(None, b"kept"), b"brief", timedelta(0))
    assert await hold.find("kt:pieces:1") == HeldValue(None, b"")


async def test_a_name_that_holds_something_else_costs_its_own_value_only(servers: Servers) -> None:
    hold, client = ShortHold(servers), servers.all[0].client
    await client.rpush("kt:pieces:x", "a list")
    found = await hold.find("kt:pieces:x")
    assert found == HeldValue(None, b"")
    for value in (b"kept here", b""):
        assert await hold.replace("kt:pieces:x", HeldValue(b"", b""), value, MINUTE)  # it has become a list since
        assert await hold.find("kt:pieces:x") == HeldValue(None, value)
    assert await hold.find("kt:pieces:y") == HeldValue(b"", b"")  # Redis is not taken to be away


def a_photo(n: int) -> Inbound:
    return Inbound(f"in_{n}", str(n), Source("telegram", "-1", "group", user="11"), "", album="a", mentioned=False)


@pytest.mark.parametrize("addressed", [0, 4, 9])
async def test_photos_that_come_to_several_receivers_at_once_are_all_taken(redis_url: str, addressed: int) -> None:
    receivers = [Servers([redis_url], 1) for _ in range(3)]
    pieces = [Pieces(servers) for servers in receivers]

    async def may_talk() -> bool:
        return True

    try:
        taken = await asyncio.gather(
            *(pieces[n % 3].admit(a_photo(n), addressed=n == addressed, may_talk=may_talk) for n in range(10))
        )
    finally:
        for servers in receivers:
            await servers.close()
    assert {inbound.id for inbounds in taken for inbound in inbounds} == {f"in_{n}" for n in range(10)}
