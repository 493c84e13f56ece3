"""The callback: the operator chose its address, and what answers there can do no more than answer."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from pydantic import SecretStr

from shared.errors import Ambiguous, ConfigurationError, PipelineError, RateLimited, Transient, Undeliverable
from shared.http_client import IGNORED_BYTES
from shared.messages import Part, Source
from shared.platforms.webhook import WebhookSettings
from tests.conftest import WEBHOOK_SECRET
from tests.store.books import ask
from tests.support.door import WAIT_SECONDS, Door, a_body, signed
from tests.support.pipe import Rig
from tests.support.working import working
from workers.delivery.webhook import LONGEST_WAIT, WebhookSender, open_callback

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
PART = Part(1, "out_1", "agent:main:webhook:dm:c1", Source("webhook", "c1"), ("evt_1",), 1, 1, "hello")


@dataclass
class Listener:
    """An HTTP server that answers as it is told and remembers what it was asked."""

    answer: Answer
    url: str = ""
    heads: list[str] = field(default_factory=list)
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.heads.append(head)
                sizes = [line.split(":")[1] for line in head.lower().split("\r\n") if line.startswith("content-length")]
                await reader.readexactly(int(sizes[0]) if sizes else 0)
                await self.answer(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[Listener]:
    listener = Listener(answer)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    listener.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield listener
    finally:
        server.close()


def answering(status: str, *headers: str, body: bytes = b"") -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        head = "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""])
        writer.write(head.encode() + body)

    return answer


@asynccontextmanager
async def sending(url: str, seconds: float = WAIT_SECONDS) -> AsyncIterator[WebhookSender]:
    settings = WebhookSettings(secrets=(SecretStr(WEBHOOK_SECRET),), callback_url=url, callback_timeout_seconds=seconds)
    async with open_callback(settings, 10) as sender:
        yield sender


@pytest.mark.parametrize("status", ["301", "302", "303", "307", "308"])
async def test_a_redirect_of_the_callback_is_not_followed_but_buried(status: str) -> None:
    async with listening(answering("200 OK")) as inside:
        elsewhere = answering(f"{status} Elsewhere", f"location: {inside.url}/latest/meta-data/")
        async with listening(elsewhere) as callback, sending(callback.url) as sender:
            with pytest.raises(Undeliverable) as caught:
                await sender.send(PART)
        assert inside.heads == [] and len(callback.heads) == 1
        assert str(caught.value) == f"HTTP {status}"  # and not where it would have sent us


async def test_an_endless_answer_costs_neither_memory_nor_time() -> None:
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            sent += 65536
            await writer.drain()

    async with listening(endless) as callback, sending(callback.url) as sender, asyncio.timeout(WAIT_SECONDS):
        await sender.send(PART)  # the status says that it was taken
        await sender.send(PART)
    assert sent < 100 * 1024 * 1024


async def test_an_answer_that_unpacks_to_a_thousand_times_its_size_is_not_unpacked() -> None:
    """It is read as it came, so it is short enough for its connection to be used again."""
    bomb = gzip.compress(bytes(50 << 20), 9)
    assert len(bomb) < IGNORED_BYTES
    answer = answering("200 OK", "content-encoding: gzip", body=bomb)
    async with listening(answer) as callback, sending(callback.url) as sender:
        for _ in range(3):
            await sender.send(PART)
    assert (len(callback.heads), callback.connections) == (3, 1)


async def test_an_answer_of_which_more_is_sent_than_is_read_ends_its_connection() -> None:
    answer = answering("200 OK", body=bytes(100 * IGNORED_BYTES))
    async with listening(answer) as callback, sending(callback.url) as sender:
        for _ in range(3):
            await sender.send(PART)
    assert (len(callback.heads), callback.connections) == (3, 3)


async def test_a_callback_that_drips_its_head_is_given_up_in_time_and_counts_as_ambiguous() -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x: y\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with listening(drip) as callback, sending(callback.url, seconds=0.3) as sender:
        async with asyncio.timeout(WAIT_SECONDS):
            with pytest.raises(Ambiguous):
                await sender.send(PART)


async def test_cookies_of_the_callback_are_not_kept() -> None:
    answer = answering("200 OK", "set-cookie: session=stolen; Path=/", "set-cookie: other=1")
    async with listening(answer) as callback, sending(callback.url) as sender:
        for _ in range(2):
            await sender.send(PART)
    assert len(callback.heads) == 2 and all("cookie" not in head.lower() for head in callback.heads)


@pytest.mark.parametrize("wait", ["-5", "nan", "inf", "1e400", "9" * 400, "soon", "", "\xff", "0x10"])
async def test_no_retry_after_makes_us_wait_for_ever_or_fail(wait: str) -> None:
    answer = answering("429 Slow Down", f"retry-after: {wait}")
    async with listening(answer) as callback, sending(callback.url) as sender:
        with pytest.raises(RateLimited) as caught:
            await sender.send(PART)
    assert 0 <= caught.value.retry_after.total_seconds() <= LONGEST_WAIT.total_seconds()


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 999 \r\n\r\n", b"\x16\x03\x01", b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", b"x" * 500_000],
)
async def test_an_answer_that_is_none_is_an_error_that_the_pipeline_knows(answer: bytes) -> None:
    async def garbage(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with listening(garbage) as callback, sending(callback.url) as sender:
        with pytest.raises((Transient, Undeliverable)):
            await sender.send(PART)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gopher://u:canary@x/", "http://", "canary", "http:///canary"])
async def test_a_callback_url_that_is_none_is_refused_at_start_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        async with sending(url):
            pass
    assert "canary" not in str(caught.value) and "passwd" not in str(caught.value)


async def test_errors_of_the_callback_name_its_host_at_most_and_neither_path_nor_password() -> None:
    async with sending("http://user:canary-password@127.0.0.1:1/canary-path") as sender:
        with pytest.raises(PipelineError) as caught:
            await sender.send(PART)
    assert "canary" not in repr(caught.value) and caught.value.__suppress_context__


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_address_inside_our_network_that_a_message_names_is_never_asked(
    door: Door, rig: Rig, scheme: str
) -> None:
    """It comes from a stranger. The message is answered, and the agent is told that the file was not read."""
    async with listening(answering("200 OK")) as inside, working(rig.pipe):
        url = f"{inside.url.replace('http', scheme, 1)}/latest/meta-data/"
        body = a_body(media=[{"url": url, "type": "image/png", "name": "a.png"}])
        assert (await door.post(body, signed(body))).json()["status"] == "accepted"
        async with asyncio.timeout(60):
            while not (rows := await ask(rig.pipe.store, "SELECT text FROM messages WHERE role = 'user'")):
                await asyncio.sleep(0.02)
        assert "[image: a.png: not read: " in rows[0]["text"] and inside.url not in rows[0]["text"]
        assert inside.connections == 0
