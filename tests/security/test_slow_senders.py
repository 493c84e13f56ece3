"""Slow, endless and many: what is spent on a sender that nobody knows yet is small, and no sender can use up the others'."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

import pytest

from producers.server import body as bodies
from producers.server import connection, unverified
from producers.server.unverified import neighbourhood
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.security.receiver import ELSEWHERE, HERE, Line, Receiver, receiving, request_head, status_of
from tests.support.door import API_KEY, WAIT_SECONDS, a_body, signed

MakeSettings = Callable[..., Settings]
WEBHOOK = "/webhooks/webhook"
KEY = {"authorization": f"Bearer {API_KEY}"}
FOREVER = 3600.0


@pytest.fixture
def no_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is slow stays: only the number of slow ones is under test."""
    monkeypatch.setattr(bodies, "KEEP_UP_SECONDS", FOREVER)
    monkeypatch.setattr(bodies, "LINGER_SECONDS", FOREVER)
    monkeypatch.setattr(connection, "HEAD_SECONDS", FOREVER)


async def slow_webhook(receiver: Receiver, address: str = HERE) -> Line:
    """A webhook whose headers are as good as they can be without the secret, and whose body does not come."""
    reader, writer = await receiver.dial(address)
    head = signed(b"", secret=b"not the secret, but the form")
    writer.write(request_head(WEBHOOK, {**head, "content-length": "1000"}) + b"{")
    return reader, writer


async def lets_others_in(receiver: Receiver) -> None:
    body = a_body()
    assert (await receiver.post(WEBHOOK, body, signed(body))).status_code == 200
    assert (await receiver.post("/v1/messages", body, KEY)).status_code in (200, 202)


async def test_many_slow_webhooks_of_one_address_keep_nobody_else_out(
    make_settings: MakeSettings, no_deadlines: None
) -> None:
    async with open_pipeline(make_settings(body_timeout_seconds=FOREVER)) as pipe, receiving(pipe) as receiver:
        slow = [await slow_webhook(receiver) for _ in range(unverified.PER_ADDRESS)]
        await receiver.until_unverified(unverified.PER_ADDRESS)
        for _ in range(20):
            reader, _ = await slow_webhook(receiver)
            assert await status_of(reader) == 429
        await lets_others_in(receiver)
        for _, writer in slow[:5]:
            writer.transport.abort()
        await receiver.until_unverified(unverified.PER_ADDRESS - 5)  # what left makes room
        await slow_webhook(receiver)
        await receiver.until_unverified(unverified.PER_ADDRESS - 4)


async def test_unverified_requests_are_bounded_in_all_and_known_senders_are_not_among_them(
    make_settings: MakeSettings, no_deadlines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unverified, "IN_ALL", 6)
    async with open_pipeline(make_settings(body_timeout_seconds=FOREVER)) as pipe, receiving(pipe) as receiver:
        for n in range(6):
            await slow_webhook(receiver, f"127.0.0.{n + 10}")
        await receiver.until_unverified(6)
        reader, _ = await slow_webhook(receiver, "127.0.0.99")
        assert await status_of(reader) == 503
        assert (await receiver.post("/v1/messages", a_body(), KEY)).status_code == 202


async def test_the_bytes_of_unverified_bodies_are_bounded_in_all(
    make_settings: MakeSettings, no_deadlines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unverified, "BYTES_IN_ALL", 300_000)
    async with open_pipeline(make_settings(body_timeout_seconds=FOREVER)) as pipe, receiving(pipe) as receiver:
        writers = []
        for n in range(2):
            _, writer = await receiver.dial(f"127.0.0.{n + 10}")
            head = signed(b"", secret=b"not the secret, but the form")
            writer.write(request_head(WEBHOOK, {**head, "content-length": "200000"}) + b"x" * 140_000)
            writers.append(writer)
        async with asyncio.timeout(WAIT_SECONDS):
            while receiver.unverified.bytes < 280_000:
                await asyncio.sleep(0.01)
        big = b"x" * 50_000
        assert (await receiver.post(WEBHOOK, big, signed(big))).status_code == 503
        for writer in writers:
            writer.transport.abort()
        await receiver.until_unverified(0)
        assert receiver.unverified.bytes == 0
        assert (await receiver.post(WEBHOOK, big, signed(big))).status_code == 200


async def test_a_signed_body_as_large_as_the_limit_is_read(receiver: Receiver) -> None:
    body = b"x" * receiver.pipe.settings.max_body_bytes
    response = await receiver.post(WEBHOOK, body, signed(body))
    assert (response.status_code, response.json()["status"]) == (200, "recorded")


async def test_an_unverified_body_that_does_not_keep_up_is_408_before_a_known_one(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "KEEP_UP_SECONDS", 0.2)
    monkeypatch.setattr(bodies, "KEEP_UP_BYTES", 1000)
    async with open_pipeline(make_settings(body_timeout_seconds=FOREVER)) as pipe, receiving(pipe) as receiver:
        reader, _ = await slow_webhook(receiver)
        assert await status_of(reader) == 408
        body = b"x" * bodies.KEEP_UP_BYTES + b"y"
        reader, writer = await receiver.dial()
        writer.write(request_head(WEBHOOK, {**signed(body), "content-length": str(len(body))}) + body[:-1])
        reader_known, writer_known = await receiver.dial()
        known = a_body()
        writer_known.write(request_head("/v1/messages", {**KEY, "content-length": str(len(known))}))
        slow, _ = await slow_webhook(receiver)
        assert await status_of(slow) == 408  # its time is up, and so would theirs be
        writer.write(body[-1:])
        writer_known.write(known)
        assert await status_of(reader) == 200
        assert await status_of(reader_known) == 202


async def test_refused_senders_that_go_on_sending_are_bounded_too(
    pipe: Pipeline, no_deadlines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unverified, "PER_ADDRESS", 4)
    async with receiving(pipe) as receiver:
        for _ in range(4):
            _, writer = await receiver.dial()
            writer.write(request_head(WEBHOOK, {"content-length": "1000"}) + b"x")
        await receiver.until_unverified(4)
        reader, writer = await receiver.dial()
        writer.write(request_head(WEBHOOK, {"content-length": "1000"}) + b"x")
        assert await status_of(reader) == 401  # at once, and the line is cut
        assert await reader.read() and reader.at_eof()
        await lets_others_in(receiver)


# Before a request has its headers.


async def test_a_head_that_does_not_come_is_cut_off(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    async with receiving(pipe) as receiver:
        silent, _ = await receiver.dial()
        assert await status_of(silent) == 0
        reader, writer = await receiver.dial()
        answer = asyncio.create_task(status_of(reader))
        writer.write(b"POST / HTTP/1.1\r\n")
        while not answer.done():
            writer.write(b"x: y\r\n")
            await asyncio.wait([answer], timeout=0.02)
        assert answer.result() == 408


async def test_a_second_head_on_a_connection_has_a_deadline_too(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await receiver.dial()
    writer.write(request_head("/healthz", {}, "GET"))
    assert await status_of(reader) == 200
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    writer.write(b"GET /healthz HTTP/1.1\r\nx:")
    async with asyncio.timeout(WAIT_SECONDS):
        assert b"HTTP/1.1 408 " in await reader.read()


async def test_a_connection_whose_head_came_in_time_lives_longer_than_that_time(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.5)
    async with receiving(pipe) as receiver:
        while True:
            begun = time.monotonic()
            reader, writer = await receiver.dial()
            writer.write(request_head("/healthz", {}, "GET"))
            status = await status_of(reader)
            if time.monotonic() - begun < 0.4:  # else this machine was too slow to tell
                break
        assert status == 200
        await asyncio.sleep(0.6)
        writer.write(request_head("/healthz", {}, "GET"))
        async with asyncio.timeout(WAIT_SECONDS):
            await reader.readuntil(b"HTTP/1.1 200 ")


async def test_a_head_without_end_is_cut_off(receiver: Receiver) -> None:
    reader, writer = await receiver.dial()
    writer.write(b"GET / HTTP/1.1\r\n")
    sent = 0
    answer = asyncio.create_task(status_of(reader))
    while not answer.done():
        writer.write(b"x: " + b"y" * 8000 + b"\r\n")
        sent += 8000
        await asyncio.wait([answer], timeout=0.01)
        assert sent < 100 * connection.HEAD_BYTES
    assert answer.result() in (431, 0)  # the word may be lost with the line
    await lets_others_in(receiver)


async def test_resting_connections_of_one_address_push_out_each_other_and_nobody_else(
    pipe: Pipeline, no_deadlines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RESTING_PER_ADDRESS", 5)
    async with receiving(pipe) as receiver:
        other, other_writer = await receiver.dial(ELSEWHERE)
        first, _ = await receiver.dial()
        rest = [await receiver.dial() for _ in range(5)]
        assert await status_of(first) == 0  # it rested longest
        for reader, writer in [*rest, (other, other_writer)]:
            writer.write(request_head("/healthz", {}, "GET"))
            assert await status_of(reader) == 200


async def test_resting_connections_in_all_give_way_to_new_ones(
    pipe: Pipeline, no_deadlines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.server.process.Resting", partial(connection.Resting, 8))
    async with receiving(pipe) as receiver:
        idle = [await receiver.dial(f"127.0.0.{n + 10}") for n in range(8)]
        await lets_others_in(receiver)
        assert await status_of(idle[0][0]) == 0


async def test_idle_connections_by_the_hundred_keep_nobody_out(receiver: Receiver) -> None:
    for _ in range(300):
        await receiver.dial()
    await lets_others_in(receiver)


def test_an_address_is_what_one_sender_can_have_many_of() -> None:
    assert neighbourhood("10.1.2.3") == "10.1.2.3"
    assert neighbourhood("::ffff:10.1.2.3") == "10.1.2.3"
    assert neighbourhood("2001:db8::1") == neighbourhood("2001:db8::ffff:ffff:ffff:ffff")
    assert neighbourhood("2001:db8:0:1::1") != neighbourhood("2001:db8:0:2::1")
    assert neighbourhood("fe80::1%eth0") == neighbourhood("fe80::2")
    assert neighbourhood("not an address: no") == "not an address: no" and neighbourhood("") == ""


async def test_behind_a_trusted_proxy_each_sender_has_an_address_of_its_own(
    make_settings: MakeSettings, no_deadlines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unverified, "PER_ADDRESS", 1)

    async def slow_behind_proxy(receiver: Receiver, sender: str) -> asyncio.StreamReader:
        reader, writer = await receiver.dial()
        head = {**signed(b"", secret=b"not the secret, but the form"), "x-forwarded-for": sender}
        writer.write(request_head(WEBHOOK, {**head, "content-length": "1000"}) + b"{")
        return reader

    times = {"body_timeout_seconds": FOREVER}
    async with open_pipeline(make_settings(**times)) as pipe, receiving(pipe) as receiver:
        await slow_behind_proxy(receiver, "192.0.2.1")
        await slow_behind_proxy(receiver, "192.0.2.2")
        await receiver.until_unverified(2)
        assert await status_of(await slow_behind_proxy(receiver, "192.0.2.1")) == 429
    async with open_pipeline(make_settings(**times, trusted_proxies=())) as pipe, receiving(pipe) as receiver:
        await slow_behind_proxy(receiver, "192.0.2.1")
        await receiver.until_unverified(1)
        assert await status_of(await slow_behind_proxy(receiver, "192.0.2.2")) == 429  # nobody believes it
