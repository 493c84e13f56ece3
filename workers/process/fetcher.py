"""Pops the wakes of one queue, over a connection of its own.

Popping is BLMOVE to RQ's intermediate list, so a wake that dies with its worker before it started is found there. The
oldest wake and the newest are taken in turn: while a backlog drains, a conversation that begins now is answered now, and
the backlog still gets half.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis
from hiredis import pack_command

from shared import log
from shared.lane.rq_names import popped_key, queue_key
from shared.redis_servers import CALL_TIMEOUT_SECONDS, RedisServer
from workers.process.wakes import ServedQueue, Wakes

POP_SECONDS = 2  # a blocking pop ends by itself or by the server's word, never by cancelling: that could strand a wake
RETRY_SECONDS = 0.5  # between tries while Redis is away
ENDS = ("LEFT", "RIGHT")  # the oldest wake, the newest


class Fetcher:
    """Takes wakes while the worker is on duty and the room has slots. Goes on after any error: who else would serve it?"""

    def __init__(self, server: RedisServer, queue: ServedQueue, wakes: Wakes) -> None:
        self._server = server
        self._queue = queue
        self._wakes = wakes
        names = queue_key(queue.name), popped_key(queue.name)
        # Each for the oldest wake and for the newest.
        self._wait = [_packed("BLMOVE", *names, end, "RIGHT", POP_SECONDS) for end in ENDS]
        self._look = [_packed("LMOVE", *names, end, "RIGHT") for end in ENDS]
        self._taken = 0
        self._connection = server.connection()
        self._client_id: int | None = None  # the connection's, as the server numbers it; None: not connected

    async def run(self) -> None:
        """Fetch until the worker stops."""
        duty = self._wakes.duty
        try:
            while not duty.stopping.is_set():
                if duty.suspended:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                try:
                    if self._queue.room.is_open or not await self._take_in_turn():
                        await self._take_next()
                except Exception as error:
                    log.get().warning("queue not reachable", queue=self._queue.name, error=type(error).__name__)
                    self._client_id = None
                    await self._connection.disconnect(nowait=True)
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            await self._connection.disconnect()

    async def unblock(self) -> None:
        """Let a pop that waits for a wake end now."""
        if self._client_id is not None:
            await self._server.client.client_unblock(self._client_id)

    async def _take_in_turn(self) -> bool:
        """Wait for a slot and take what waits in the queue, if anything does. False: nothing did."""
        slot = await self._queue.room.reserve()
        if not self._wakes.duty.takes_wakes:
            slot.leave()
            return True
        try:
            popped = await self._pop(self._look, CALL_TIMEOUT_SECONDS)
        except BaseException:
            slot.leave()
            raise
        if popped is None:
            slot.leave()
            return False
        if slot.keep():
            self._wakes.start(self._queue, popped, slot)
        else:
            await self._wakes.put_back(self._queue, popped)
        return True

    async def _take_next(self) -> None:
        """Wait for a wake and take it, if the room still has a slot by then."""
        popped = await self._pop(self._wait, POP_SECONDS + CALL_TIMEOUT_SECONDS)
        if popped is None:
            return
        slot = self._queue.room.take()
        if slot is not None:
            self._wakes.start(self._queue, popped, slot)
        else:
            await self._wakes.put_back(self._queue, popped)

    async def _pop(self, commands: Sequence[bytes], limit_seconds: float) -> bytes | None:
        connection = self._connection
        async with asyncio.timeout(limit_seconds):
            if self._client_id is None:
                await connection.connect()
                await connection.send_command("CLIENT", "ID")
                self._client_id = await connection.read_response()
            await connection.send_packed_command(commands[self._taken & 1], check_health=False)
            popped: bytes | None = await connection.read_response()
        if popped is not None:
            self._taken += 1
        return popped


async def end_fetching(fetchers: Sequence[Fetcher], running: Sequence[asyncio.Task[None]]) -> None:
    """Wait for the fetchers to see that the worker stops. If the server may not end their pops, these end by themselves."""
    while any(not task.done() for task in running):
        with suppress(redis.RedisError, OSError, TimeoutError):
            async with asyncio.timeout(POP_SECONDS):
                for fetcher in fetchers:
                    await fetcher.unblock()
        await asyncio.wait(running, timeout=0.1)


def _packed(*command: Any) -> bytes:
    packed: bytes = pack_command(command)
    return packed
