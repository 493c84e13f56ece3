"""No more bytes are in memory at once than the budget has."""

from __future__ import annotations

import asyncio

from shared.byte_budget import ByteBudget


async def test_no_more_than_the_budget_is_used_at_once_and_everybody_gets_through() -> None:
    budget, used, most, done = ByteBudget(10), 0, 0, 0

    async def one(size: int) -> None:
        nonlocal used, most, done
        async with budget.room(size):
            used += size
            most = max(most, used)
            await asyncio.sleep(0)
            used -= size
            done += 1

    await asyncio.gather(*(one(size) for size in (4, 4, 4, 10, 1, 1, 1, 0, 9) * 5))
    assert (most, done) == (10, 45)


async def test_what_is_larger_than_the_budget_has_it_alone() -> None:
    budget, order = ByteBudget(10), list[str]()

    async def one(name: str, size: int) -> None:
        async with budget.room(size):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    await asyncio.gather(one("small", 5), one("huge", 50), one("later", 5))
    assert order == ["small in", "small out", "huge in", "huge out", "later in", "later out"]


async def test_one_that_gives_up_waiting_keeps_no_room() -> None:
    budget = ByteBudget(10)
    async with budget.room(8):
        waiting = asyncio.create_task(_take(budget, 8))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(5):
        await _take(budget, 10)


async def test_one_that_gives_up_in_the_moment_it_is_given_room_gives_it_back() -> None:
    budget = ByteBudget(10)
    async with budget.room(8):
        waiting = asyncio.create_task(_take(budget, 8))
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(5):
        await _take(budget, 10)


async def _take(budget: ByteBudget, size: int) -> None:
    async with budget.room(size):
        pass
