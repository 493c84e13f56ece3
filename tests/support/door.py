"""The HTTP surface in a test's hands: post to it, and see what it logged and what it kept."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import psycopg
import redis.asyncio as aioredis
import uvicorn
from pydantic import SecretStr
from structlog.testing import capture_logs

from producers.server.app import build_app
from producers.server.bind import bind
from shared import signing
from shared.pipeline import Pipeline
from tests.conftest import WEBHOOK_SECRET

API_KEY = "test-key"
WAIT_SECONDS = 60.0
TABLES = ("inbox", "routes", "sessions", "messages", "turns", "outbox", "dead")
Headers = dict[str, str] | Sequence[tuple[str, str]]


def a_body(**changes: Any) -> bytes:
    """The smallest message, with these fields instead; None takes one away."""
    fields: dict[str, Any] = {"chat": {"id": "c1"}, "user": {"id": "u1"}, "text": "hello", **changes}
    return orjson.dumps({name: value for name, value in fields.items() if value is not None})


def signed(body: bytes, id: str = "evt_1", *, secret: bytes | None = None, ahead: int = 0) -> dict[str, str]:
    """The headers of a webhook that carries `body`, signed as if it were `ahead` seconds later."""
    at = int(time.time()) + ahead
    key = secret if secret is not None else signing.decode_secret(SecretStr(WEBHOOK_SECRET))
    signature = signing.sign(key, id, at, body)
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signature}


@dataclass
class Door:
    pipe: Pipeline
    client: httpx.AsyncClient
    lines: list[Any]  # what our own code logged
    records: list[logging.LogRecord]  # what libraries logged, warnings and worse
    port: int = 0
    app: Any = None
    key: Sequence[tuple[str, str]] = field(default=(("authorization", f"Bearer {API_KEY}"),))

    async def post(self, body: Any, headers: Headers) -> httpx.Response:
        return await self.client.post("/webhooks/webhook", content=body, headers=_raw(headers))

    async def post_api(self, body: Any) -> httpx.Response:
        return await self.client.post("/v1/messages", content=body, headers=_raw(self.key))

    async def request(self, method: str, path: str, headers: Headers = (), content: bytes = b"") -> httpx.Response:
        return await self.client.request(method, path, content=content, headers=_raw(headers))

    async def refused(self, status: int | None, *, dead: int = 0) -> None:
        """One line without traceback and secret; nothing kept but so many records."""
        [line] = self.lines
        assert line["log_level"] == "warning" and "exc_info" not in line
        assert status is None or line["status"] == status
        text = repr(line)
        for secret in (API_KEY, WEBHOOK_SECRET, self.pipe.settings.database, *self.pipe.settings.redis_urls()):
            assert secret not in text
        assert len(text) < 1000 and "hello" not in text
        assert not self.records
        assert await self.stored() == {**dict.fromkeys(TABLES, 0), "dead": dead}
        assert await self._redis_keys() == []
        self.lines.clear()

    async def nothing_stored(self) -> bool:
        return not any((await self.stored()).values()) and await self._redis_keys() == []

    async def stored(self) -> dict[str, int]:
        """How many rows each table has."""
        return await asyncio.to_thread(_count_rows, self.pipe.settings.database)

    def lines_at(self, *levels: str) -> list[Any]:
        return [line for line in self.lines if line["log_level"] in levels]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not true():
                await asyncio.sleep(0.01)

    async def until_nobody_listens(self) -> None:
        """Wait until no subscription is left in Redis."""
        async with asyncio.timeout(WAIT_SECONDS):
            for server in self.pipe.servers.all:
                while await _subscribers(server.client):
                    await asyncio.sleep(0.01)

    @asynccontextmanager
    async def socket(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A bare connection, cut off at the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                yield reader, writer
        finally:
            writer.transport.abort()

    def head(self, path: str, *fields: str, method: str = "POST") -> bytes:
        return "\r\n".join([f"{method} {path} HTTP/1.1", "host: test", *fields, "", ""]).encode("latin-1")

    async def _redis_keys(self) -> list[bytes]:
        return [key for server in self.pipe.servers.all async for key in server.client.scan_iter("*")]


@asynccontextmanager
async def open_door(pipe: Pipeline) -> AsyncIterator[Door]:
    """The app without a server around it: an exception that leaves the app fails the test."""
    with capture_logs() as lines, _captured() as records:
        transport = httpx.ASGITransport(build_app(pipe))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=WAIT_SECONDS) as client:
            yield Door(pipe, client, lines, records)


@asynccontextmanager
async def served(pipe: Pipeline) -> AsyncIterator[Door]:
    """The app behind a real server and a real socket."""
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    app = build_app(pipe)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    with capture_logs() as lines, _captured() as records:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            url = f"http://127.0.0.1:{port}"
            async with httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS, trust_env=False) as client:
                yield Door(pipe, client, lines, records, port, app)
        finally:
            server.should_exit = server.force_exit = True
            await serving
            listening.close()


async def sse_events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Server-sent events as they arrive; a comment is an empty one."""
    event: dict[str, Any] = {}
    async for line in response.aiter_lines():
        if not line:
            yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = orjson.loads(value) if name == "data" else value


def _count_rows(url: str) -> dict[str, int]:
    """Asked of the database itself, past our own code."""
    sql = f"SELECT {', '.join(f'(SELECT COUNT(*) FROM {table})' for table in TABLES)}"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            counts = file.execute(sql).fetchone()
    else:
        with psycopg.connect(url) as connection:
            counts = connection.execute(sql.encode()).fetchone()
    return dict(zip(TABLES, counts, strict=True))


async def _subscribers(client: aioredis.Redis) -> int:
    return len(await client.client_list(_type="pubsub"))


def _raw(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Headers as bytes: a hostile sender writes what it likes."""
    items = headers.items() if isinstance(headers, dict) else headers
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in items]


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class _captured:
    """What the standard library's logging heard, warnings and worse, and nothing of it forwarded to our own lines."""

    def __enter__(self) -> list[logging.LogRecord]:
        handler, root = _Records(), logging.getLogger()
        self._others, root.handlers = root.handlers, [handler]
        return handler.records

    def __exit__(self, *_: object) -> None:
        logging.getLogger().handlers = self._others
