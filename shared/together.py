"""Calls that wait for the same line are made together: what is asked for while one call is under way goes into the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Together(Generic[Asked, Answer]):
    """`send` gives an answer, or an error to raise, for each of those that it is given; what it raises itself, all get."""

    def __init__(
        self, send: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer | BaseException]]], at_most: int
    ) -> None:
        self._send = send
        self._at_most = at_most
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._sending: asyncio.Task[None] | None = None

    def call(self, asked: Asked) -> asyncio.Future[Answer]:
        """The answer to come. Calls of the same tick of the event loop go together too."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_waiting())
        return future

    async def _send_waiting(self) -> None:
        while self._waiting:
            calls, self._waiting = self._waiting[: self._at_most], self._waiting[self._at_most :]
            try:
                answers = await self._send([asked for asked, _ in calls])
            except Exception as error:
                answers = [error] * len(calls)
            for (_, future), answer in zip(calls, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, BaseException):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
