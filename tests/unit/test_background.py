"""Tasks that keep something alive: they end when they are to end."""

from __future__ import annotations

import asyncio

from shared.background import end_tasks


async def test_a_task_that_lost_its_first_cancellation_ends_nevertheless() -> None:
    lost = asyncio.Event()

    async def loop() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if lost.is_set():
                    raise
                lost.set()

    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await end_tasks(task)
    assert lost.is_set() and task.cancelled()


async def test_tasks_that_are_over_or_end_with_an_error_are_no_trouble() -> None:
    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError

    over, failing = asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(fails())
    await over
    await end_tasks(over, failing)
    assert over.done() and isinstance(failing.exception(), OSError)
