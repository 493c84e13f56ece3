"""Calls that wait for the same line are made together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from shared.together import Together


class Line:
    """Answers a number with its double, when it is let; 13 it does not like, and 99 breaks it."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.free = asyncio.Event()

    async def send(self, asked: Sequence[int]) -> list[int | BaseException]:
        self.sent.append(list(asked))
        await self.free.wait()
        if 99 in asked:
            raise ConnectionError
        return [ValueError(number) if number == 13 else number * 2 for number in asked]


async def test_what_is_asked_while_a_call_is_under_way_goes_into_the_next_and_never_more_than_fit() -> None:
    line = Line()
    together = Together(line.send, 3)
    first = together.call(1)
    await asyncio.sleep(0)
    rest = [together.call(number) for number in range(2, 7)]
    line.free.set()
    assert await asyncio.gather(first, *rest) == [2, 4, 6, 8, 10, 12]
    assert line.sent == [[1], [2, 3, 4], [5, 6]]


async def test_each_hears_its_own_error_and_of_a_broken_line_all_hear() -> None:
    line = Line()
    line.free.set()
    together = Together(line.send, 10)
    good, bad = together.call(1), together.call(13)
    assert await good == 2
    with pytest.raises(ValueError, match="13"):
        await bad
    outcomes = await asyncio.gather(together.call(1), together.call(99), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionError, ConnectionError]
    assert await together.call(2) == 4


async def test_who_gave_up_waiting_keeps_nobody_from_an_answer() -> None:
    line = Line()
    together = Together(line.send, 10)
    given_up, waiting = together.call(1), together.call(2)
    await asyncio.sleep(0)
    given_up.cancel()
    line.free.set()
    assert await waiting == 4
