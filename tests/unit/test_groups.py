"""A crowd goes through in groups, and the event loop does other things in between."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from workers.agents.openai_format.groups import Groups


async def entered_by_turn(groups: Groups, count: int) -> list[int]:
    """How many of a crowd went through in each turn of the event loop."""
    through: list[int] = []

    async def one(n: int) -> None:
        await groups.enter()
        through.append(n)

    crowd, seen = asyncio.gather(*(one(n) for n in range(count))), [0]
    while not crowd.done():
        await asyncio.sleep(0)
        seen.append(len(through))
    assert through == list(range(count))
    return [after - before for before, after in pairwise(seen) if after > before]


async def test_a_crowd_goes_through_in_groups_in_its_order() -> None:
    assert await entered_by_turn(Groups(16), 40) == [16, 16, 8]


async def test_those_who_come_when_the_crowd_is_through_do_not_wait() -> None:
    groups = Groups(16)
    for _ in range(3):
        assert await entered_by_turn(groups, 10) == [10]
        await asyncio.sleep(0)


async def test_one_who_is_cancelled_takes_nobodys_place() -> None:
    groups, through = Groups(2), []

    async def one(n: int) -> None:
        await groups.enter()
        through.append(n)

    crowd = [asyncio.create_task(one(n)) for n in range(6)]
    await asyncio.sleep(0)
    crowd[2].cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    assert through == [0, 1, 3, 4, 5]
