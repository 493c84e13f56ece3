"""A model's provider as a process of its own: `python -m tests.bench.provider DELTAS SECONDS` prints its URL.

Every answer is streamed in that many deltas, evenly over that time. It looks at nothing of a request but its length, so that
it takes little from the worker under measurement.
"""

from __future__ import annotations

import asyncio
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


class Answers(asyncio.Protocol):
    """One connection: requests come one after another, each is answered when it is whole."""

    def __init__(self, chunks: list[bytes], seconds: float) -> None:
        self._chunks = chunks
        self._between = seconds / len(chunks)
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop does not say that it is one

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        if found and len(body) >= _length(head):
            self._read = b""
            self._transport.write(_HEAD)
            self._later(0)

    def _later(self, n: int) -> None:
        asyncio.get_running_loop().call_later(self._between, self._say, n)

    def _say(self, n: int) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(self._chunks[n])
        if n + 1 < len(self._chunks):
            self._later(n + 1)


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
    answers = partial(Answers, _chunks(deltas), seconds)
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
