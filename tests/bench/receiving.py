"""A receiver beside an empty route: `python -m tests.bench.receiving PLATFORM REQUESTS`.

Both are served by this process, each on a port of its own, and get the same bodies in turn, so that a slow moment hits both.
Requests are checked and normalised as ever; the door behind it accepts nothing, so there is neither journal nor Redis. Rates
are requests per second of CPU time of this process, which is what one core can take: who sends is another process.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import orjson
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from producers import settling
from producers.server.app import build_app
from producers.server.bind import bind
from producers.server.process import server_config
from producers.telegram import updates
from shared import log, settings
from shared.door import Acceptance
from shared.messages import Inbound, State
from shared.pipeline import Pipeline, open_pipeline
from shared.session_key import SessionKey
from tests.bench.board import Sample
from tests.bench.callback import raw_post
from tests.contract.case import Post, Webhook
from tests.contract.found import WAYS_IN

SLICES = 20  # of each of the two, in turn
WARM_UP = 50


async def empty(_: Request) -> Response:
    return Response()


async def accept_nothing(pipe: Pipeline, inbound: Inbound, key: SessionKey | None = None) -> Acceptance:
    return Acceptance(inbound.id, "", State.PENDING, True)


async def measure(platform: str, count: int) -> Sample:
    log.setup("warning", "bench")
    way = next(way for way in WAYS_IN if way.platform == platform and issubclass(way, Webhook))
    vars(settling)["accept"] = accept_nothing
    vars(updates)["_STARTED_MS"] = 0  # Telegram's messages of before are looked for in the journal; these are of now
    async with way.open() as case:
        assert isinstance(case, Webhook)
        config = settings.load().model_copy(update=case.blocks(case.secrets[0]))
        async with open_pipeline(config) as pipe:
            theirs = uvicorn.Config(
                Starlette(routes=[Route("/", empty, methods=["POST"])]),
                log_config=None,
                access_log=False,
                lifespan="off",
            )
            servers = [uvicorn.Server(theirs), uvicorn.Server(server_config(build_app(pipe), config))]
            sockets = [bind("127.0.0.1", 0) for _ in servers]
            ports = [socket.getsockname()[1] for socket in sockets]
            serving = [
                asyncio.create_task(server._serve([socket])) for server, socket in zip(servers, sockets, strict=True)
            ]
            posts = [_post(case, n) for n in range(WARM_UP + count)]
            with tempfile.NamedTemporaryFile() as file:
                sent = {
                    ports[0]: [_raw(post, "/") for post in posts],
                    ports[1]: [_raw(post, post.path) for post in posts],
                }
                file.write(pickle.dumps(sent))
                file.flush()
                sample = await _compared(Path(file.name), ports, count)
            for server in servers:
                server.should_exit = True
            await asyncio.gather(*serving)
    return sample


def _post(case: Webhook, n: int) -> Post:
    return case.post(orjson.dumps(case.said(f"How is the weather in town {n}?", id=n + 1)), case.secrets[0])


def _raw(post: Post, path: str) -> bytes:
    known = {name.lower(): value for name, value in post.headers}
    headers = {"content-type": "application/json", **known, "content-length": str(len(post.body))}
    return raw_post(path, [(name.encode(), value.encode()) for name, value in headers.items()], post.body)


async def _compared(file: Path, ports: Sequence[int], count: int) -> Sample:
    sender = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.posting",
        str(file),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert sender.stdin is not None and sender.stdout is not None

    async def sent(port: int, first: int, last: int) -> float:
        """The CPU time of this process meanwhile."""
        assert sender.stdin is not None and sender.stdout is not None
        before = time.process_time()
        sender.stdin.write(f"{port} {first} {last}\n".encode())
        if await sender.stdout.readline() != b"done\n":
            raise RuntimeError(f"the sender ended with {await sender.wait()}")
        return time.process_time() - before

    await sender.stdout.readline()
    for port in ports:
        await sent(port, 0, WARM_UP)
    used: list[list[float]] = [[], []]
    for first, last in _slices(WARM_UP, count):
        for port, times in zip(ports, used, strict=True):
            times.append((await sent(port, first, last)) / (last - first))
    sender.stdin.close()
    await sender.wait()
    each = [median(times) for times in used]
    return {"rate": 1 / each[1], "empty_rate": 1 / each[0], "share": each[0] / each[1], "cpu_ms": 1000 * each[1]}


def _slices(start: int, count: int) -> Iterator[tuple[int, int]]:
    size = max(count // SLICES, 1)
    for first in range(start, start + count - size + 1, size):
        yield first, first + size


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(sys.argv[1], int(sys.argv[2])))))
