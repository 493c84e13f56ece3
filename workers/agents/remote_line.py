"""The connection between an isolated process and its worker, as the process uses it: it asks, and the worker answers.

A question is a frame `{"<subject>":{"id",…}}`; its answer has the same `id`. What needs no answer has no `id`.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from shared.codec import encode_json
from workers.agents.frames import LIMIT_BYTES, framed, read_frame, too_long


class WorkerLine:
    """One for each process. Several questions may be open at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listening: asyncio.Task[None] | None = None

    async def ask(self, subject: str, what: dict[str, Any]) -> dict[str, Any]:
        """The worker's answer. AgentFault for a question that is too long."""
        id = next(self._ids)
        record = encode_json({subject: {"id": id, **what}})
        if len(record) > LIMIT_BYTES:
            raise too_long(len(record))
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[id] = answer
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        self._writer.write(framed(record))
        await self._writer.drain()
        return await answer

    def tell(self, subject: str, what: dict[str, Any]) -> None:
        """Say something that needs no answer. Does not wait."""
        self._writer.write(framed(encode_json({subject: what})))

    async def _listen(self) -> None:
        """Hand answers to those who wait for them. The process ends when the worker hangs up."""
        while (answer := await read_frame(self._reader)) is not None:
            waiting = self._waiting.pop(answer["id"])
            if not waiting.done():
                waiting.set_result(answer)
