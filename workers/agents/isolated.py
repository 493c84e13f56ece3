"""Runs turns apart: each in a process of its own, so that one that brings its process down hurts no other.

A nursery process (workers/agents/fork_server.py) has the agent loaded and forks for each connection that it is handed. A
connection is a turn: the turn goes in, the result comes out, and one that ends without a result means that the process died.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from datetime import timedelta

import orjson

from shared.agent.turn import Result, Turn
from shared.agent.wire import decode_result, encode_turn
from shared.embedded import child
from shared.errors import Crashed, Outage, Permanent, Transient
from shared.own_modules import command_of
from shared.session_key import MAIN

AT_ONCE = 32
START_SECONDS = 30.0


class Apart:
    """An agent like the one it is named after. Nothing is started until it is first needed."""

    def __init__(self, agent: str, timeout_seconds: float, name: str = MAIN) -> None:
        self._agent = agent
        self._name = name  # whose settings it has
        self._timeout_seconds = timeout_seconds
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._starting = asyncio.Lock()
        self._nursery: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None  # to the nursery, which ends when this one does

    async def run(self, turn: Turn) -> Result:
        """As the agent does, with a deadline from when its process is there; Crashed when that died."""
        async with self._slots:
            reader, writer = await self._connect()
            try:
                data = encode_turn(turn)
                writer.write(len(data).to_bytes(8, "big") + data)
                async with asyncio.timeout(self._timeout_seconds):
                    answer = await reader.read()  # the process ends when we hang up: a cancelled turn does not go on
            except ConnectionError:
                answer = b""
            finally:
                writer.close()
        if not answer:
            raise Crashed("the process that ran this turn died")
        outcome = orjson.loads(answer)
        if "result" in outcome:
            return decode_result(outcome["result"])
        if outcome["permanent"]:
            raise Permanent(outcome["error"], outcome["notice"])
        if (outage := outcome["outage"]) is not None:
            waits = timedelta(seconds=outage["retry_after_s"])
            raise Outage(outcome["error"], retry_after=waits, provider=outage["provider"], status=outage["status"])
        raise Transient(outcome["error"])

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._nursery is not None:
            child.stop(self._nursery, signal.SIGTERM, 2)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self._starting:
            if self._nursery is None or self._nursery.poll() is not None:
                await self._start()
        assert self._line is not None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._line, [b"a turn"], [theirs.fileno()])
            return await asyncio.open_unix_connection(sock=ours)
        except OSError as error:
            ours.close()
            raise Transient(f"the nursery does not answer: {type(error).__name__}") from None

    async def _start(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        told = [str(theirs.fileno()), self._agent, str(self._timeout_seconds), self._name]
        command = command_of("workers.agents.fork_server", *told)
        with theirs:
            self._nursery = child.start(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        async with asyncio.timeout(START_SECONDS):
            if not await asyncio.get_running_loop().sock_recv(self._line, 1):
                raise Transient("the nursery did not start")
