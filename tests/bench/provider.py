"""A model's provider as a process of its own: `python -m tests.bench.provider DELTAS SECONDS` prints its URL.

Every answer is streamed in that many deltas, evenly over that time. The provider is a fake that shares the machine with the worker
under measurement, so it does as little as it can: it looks at nothing of a request but its length, has one timer for all answers,
and hands each delta straight to the kernel.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast

import orjson
import uvloop

from tests.bench.ground import environment
from tests.bench.processes import Measured

MODEL, KEY = "bench-model", "sk-bench"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LENGTH = b"content-length:"
SLOTS = 8  # ticks in a round


class Rounds:
    """Says the next delta of every open answer once in a round. A round has SLOTS ticks, and an answer keeps to the tick in which it
    began. Nothing ticks while no answer is open."""

    def __init__(self, round_seconds: float) -> None:
        self._tick_seconds = round_seconds / SLOTS
        self._slots: list[list[Answers]] = [[] for _ in range(SLOTS)]
        self._open = 0
        self._ticks = 0
        self._next_at = 0.0

    def join(self, answer: Answers) -> None:
        """Say the first delta a round from now."""
        self._slots[(self._ticks - 1) % SLOTS].append(answer)
        self._open += 1
        if self._open == 1:
            self._next_at = asyncio.get_running_loop().time()
            self._wait()

    def _wait(self) -> None:
        self._next_at += self._tick_seconds
        asyncio.get_running_loop().call_at(self._next_at, self._tick)

    def _tick(self) -> None:
        slot, self._ticks = self._ticks % SLOTS, self._ticks + 1
        said = self._slots[slot]
        self._slots[slot] = [answer for answer in said if answer.say_next()]
        self._open -= len(said) - len(self._slots[slot])
        if self._open:
            self._wait()


class Answers(asyncio.Protocol):
    """One connection: requests come one after another, each is answered when it is whole."""

    def __init__(self, chunks: list[bytes], rounds: Rounds) -> None:
        self._chunks = chunks
        self._rounds = rounds
        self._read = b""
        self._said = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop does not say that it is one
        self._fd: int = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        if found and len(body) >= _length(head):
            self._read, self._said = b"", 0
            os.write(self._fd, _HEAD)
            self._rounds.join(self)

    def say_next(self) -> bool:
        """Whether more is to be said. What is written fits into the connection's buffer: a whole answer is shorter."""
        if self._transport.is_closing():
            return False
        try:
            os.write(self._fd, self._chunks[self._said])
        except ConnectionError:  # the worker has ended
            return False
        self._said += 1
        return self._said < len(self._chunks)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(_LENGTH):
            return int(line.removeprefix(_LENGTH))
    return 0


def _chunks(deltas: int) -> list[bytes]:
    """The answer as it is written: a chunk per delta; the last one has the end and the usage with it."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": MODEL}
    said = [{**head, "choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}] * deltas
    ended = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    used = {
        **head,
        "choices": [],
        "usage": {"prompt_tokens": 9, "completion_tokens": deltas, "total_tokens": 9 + deltas},
    }
    last = b"".join(map(_event, (ended, used))) + b"data: [DONE]\n\n"
    chunks = [_chunk(_event(chunk)) for chunk in said]
    chunks[-1] += _chunk(last) + b"0\r\n\r\n"
    return chunks


def _event(chunk: object) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def serve(deltas: int, seconds: float) -> None:
    rounds = Rounds(seconds / deltas)
    answers = partial(Answers, _chunks(deltas), rounds)
    server = await asyncio.get_running_loop().create_server(answers, "127.0.0.1", 0, backlog=4096)
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


@contextmanager
def open_provider(directory: Path, deltas: int, seconds: float) -> Iterator[tuple[str, Measured]]:
    """Its URL, and the process."""
    command = (sys.executable, "-m", "tests.bench.provider", str(deltas), str(seconds))
    process = Measured(command, environment(), directory / "provider.log", directory)
    try:
        yield process.ready_url(), process
    finally:
        process.stop()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2])))
