"""The sender beside `tests.bench.receiving`, a process of its own: `python -m tests.bench.posting FILE`.

The file holds requests by the port that they go to. For each line `PORT FIRST LAST` that it reads, it sends that part of them and
prints `done`.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import uvloop

from tests.bench.callback import Sender

AT_ONCE = 32
TAKEN = (b"200", b"202")


async def _send(sender: Sender, coming: Iterator[bytes]) -> None:
    for request in coming:
        await sender.send(request, TAKEN)


async def serve(requests: dict[int, list[bytes]]) -> None:
    senders = {port: Sender(port) for port in requests}
    loop = asyncio.get_running_loop()
    print("done", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        port, first, last = map(int, line.split())
        coming = iter(requests[port][first:last])
        await asyncio.gather(*(_send(senders[port], coming) for _ in range(AT_ONCE)))
        print("done", flush=True)
    for sender in senders.values():
        sender.close()


if __name__ == "__main__":
    uvloop.run(serve(pickle.loads(Path(sys.argv[1]).read_bytes())))  # our own parent wrote it
