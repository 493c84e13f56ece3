"""The producer's side in one process: `python -m tests.bench.accepting accept|webhook MESSAGES`.

accept   the only door in, for inbounds that are normalised already: journal and mailbox
webhook  the whole receiver but for its socket: signature, parse, normalise, accept
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import orjson
import uvloop
from starlette.types import ASGIApp

from producers.server.app import build_app
from shared import log, settings, signing
from shared.interpreter import share_with_threads
from shared.pipeline import open_pipeline
from shared.platforms.webhook import WebhookSettings
from tests.bench.board import Sample
from tests.bench.keyturn import AT_ONCE, accept_all, an_inbound
from tests.bench.load import arrivals
from tests.bench.program import Meter

PER_KEY = 10


async def measure(door: str, messages: int) -> Sample:
    config = settings.load()
    log.setup("warning", "bench")
    pairs = list(arrivals(max(messages // PER_KEY, 1), PER_KEY))[:messages]
    async with open_pipeline(config) as pipe:
        meter = Meter(pipe)
        if door == "accept":
            inbounds = [an_inbound(key, n) for key, n in pairs]
            await accept_all(pipe, [an_inbound(10**6 + n, 0) for n in range(AT_ONCE)])  # connections and scripts
            await meter.start()
            await accept_all(pipe, inbounds)
        else:
            app = build_app(pipe)
            key = signing.decode_secret(config.block(WebhookSettings).secrets[0])
            requests = [signed(key, f"evt_{chat}_{n}", chat, str(n)) for chat, n in pairs]
            await _post_all(app, [signed(key, f"evt_{n}", 10**6 + n, "0") for n in range(AT_ONCE)])
            await meter.start()
            await _post_all(app, requests)
        return await meter.figures(len(pairs))


def signed(key: bytes, id: str, chat: int, text: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of a webhook request."""
    body = orjson.dumps({"id": id, "chat": {"id": f"c{chat}"}, "user": {"id": "u1"}, "text": text})
    now = int(time.time())
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"webhook-id", id.encode()),
        (b"webhook-timestamp", str(now).encode()),
        (b"webhook-signature", signing.sign(key, id, now, body).encode()),
    ]
    return headers, body


async def _post_all(app: ASGIApp, requests: list[tuple[list[tuple[bytes, bytes]], bytes]]) -> None:
    coming = iter(requests)

    async def send() -> None:
        for headers, body in coming:
            await _post(app, headers, body)

    await asyncio.gather(*(send() for _ in range(AT_ONCE)))


async def _post(app: ASGIApp, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    path = "/webhooks/webhook"
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise RuntimeError(f"refused with {message['status']}")

    await app(scope, receive, send)


if __name__ == "__main__":
    share_with_threads()
    print(json.dumps(uvloop.run(measure(sys.argv[1], int(sys.argv[2])))))
