"""Too much, too large, too slow: refused in time, at the cost of one line, and the sender sees why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import product

import pytest

from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.support.door import API_KEY, a_body, open_door, served, signed
from tests.support.pipe import Rig

MakeSettings = Callable[..., Settings]


async def test_a_full_mailbox_is_429_for_that_chat_and_for_no_other(make_settings: MakeSettings) -> None:
    async with open_pipeline(make_settings(mailbox_limit=2)) as pipe, open_door(pipe) as door:
        for n in range(2):
            assert (await door.post_api(a_body(id=f"evt_{n}"))).status_code == 202
        door.lines.clear()
        full = await door.post_api(a_body(id="evt_2"))
        assert full.status_code == 429 and int(full.headers["retry-after"]) > 0
        assert [line["status"] for line in door.lines] == [429]
        signed_full = await door.post(
            a_body(chat={"id": "c1"}, id="evt_w"), signed(a_body(chat={"id": "c1"}, id="evt_w"))
        )
        assert signed_full.status_code == 200  # another platform's chat of the same name
        assert (await door.post_api(a_body(id="evt_1"))).status_code == 200  # known: nothing is added
        assert (await door.post_api(a_body(id="evt_3", chat={"id": "c2"}))).status_code == 202
        await Rig(pipe).run_turns("agent:main:api:dm:c1")
        assert (await door.post_api(a_body(id="evt_2"))).status_code == 202


async def test_a_full_mailbox_is_429_for_a_webhook_too(make_settings: MakeSettings) -> None:
    async with open_pipeline(make_settings(mailbox_limit=1)) as pipe, open_door(pipe) as door:
        for n, status in enumerate((200, 429)):
            body = a_body(id=f"evt_{n}")
            response = await door.post(body, signed(body))
            assert response.status_code == status
        assert int(response.headers["retry-after"]) > 0
        assert (await door.stored())["dead"] == 0


async def _chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 65536):
        yield b"x" * 65536


async def test_a_body_of_10_mb_is_refused_and_its_sender_sees_the_answer(
    pipe: Pipeline, subtests: pytest.Subtests
) -> None:
    size = 10 * 1024 * 1024
    senders = {"unsigned": (401, "/webhooks/webhook", {}), "signed": (413, "/webhooks/webhook", signed(b"x" * size))}
    senders["with a key"] = (413, "/v1/messages", {"authorization": f"Bearer {API_KEY}"})
    async with served(pipe) as door:
        for (who, (status, path, headers)), chunked in product(senders.items(), (False, True)):
            with subtests.test(who, chunked=chunked):
                content = _chunks(size) if chunked else b"x" * size
                response = await door.client.post(path, content=content, headers=headers)
                assert response.status_code == status
                await door.refused(status)
        assert (await door.post_api(a_body())).status_code == 202  # the door still opens


async def _send_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        await writer.drain()


async def test_a_body_without_end_is_cut_off(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.server.body.LINGER_BYTES", 4 * 1024 * 1024)
    async with served(pipe) as door, door.socket() as (_, writer):
        writer.write(door.head("/v1/messages", f"authorization: Bearer {API_KEY}", "transfer-encoding: chunked"))
        with pytest.raises(ConnectionError):
            await _send_for_ever(writer)
        await door.refused(413)


async def test_a_body_that_drips_is_408_in_time(make_settings: MakeSettings) -> None:
    async with open_pipeline(make_settings(body_timeout_seconds=0.3)) as pipe, served(pipe) as door:
        for fields in (["content-length: 100000"], ["transfer-encoding: chunked"]):
            async with door.socket() as (reader, writer):
                writer.write(door.head("/v1/messages", f"authorization: Bearer {API_KEY}", *fields))
                answer = asyncio.create_task(reader.read())
                while not answer.done():
                    writer.write(b"1\r\nx\r\n")
                    await asyncio.wait([answer], timeout=0.02)
                with suppress(ConnectionResetError):  # whoever goes on sending may be cut off before he reads
                    assert answer.result().startswith(b"HTTP/1.1 408 ")
            await door.refused(408)


async def test_a_sender_that_leaves_in_the_middle_leaves_nothing(pipe: Pipeline) -> None:
    body = a_body()
    async with served(pipe) as door:
        async with door.socket() as (_, writer):
            fields = [f"{name}: {value}" for name, value in signed(body).items()]
            writer.write(door.head("/webhooks/webhook", *fields, f"content-length: {len(body)}") + body[:-1])
            await writer.drain()
        await door.until(lambda: bool(door.lines))
        await door.refused(400)


async def test_a_sender_that_asks_first_is_refused_before_it_sends(pipe: Pipeline) -> None:
    async with served(pipe) as door, door.socket() as (reader, writer):
        writer.write(door.head("/webhooks/webhook", "content-length: 100000", "expect: 100-continue"))
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 401 ") and b"100" not in answer.partition(b"\r\n")[0]
        await door.refused(401)


async def test_bytes_that_are_no_http_are_answered_without_a_traceback(pipe: Pipeline) -> None:
    async with served(pipe) as door:
        for garbage in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 1000, b"POST /\r\n\r\n"):
            async with door.socket() as (reader, writer):
                writer.write(garbage + b"\r\n\r\n")
                answer = await reader.read()
                assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
        assert (await door.client.get("/healthz")).status_code == 200
        assert await door.nothing_stored()
        assert not [record for record in door.records if record.exc_info]
