"""Websockets and endless answers that we hold: whatever the other side does, an error says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import WSCloseCode, WSMsgType, web

from shared.errors import Denied, RateLimited, Transient
from shared.http_client import HttpClient, open_http_client
from shared.websocket import FRAME_BYTES, Closed

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
WAIT_SECONDS = 60.0


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    async with open_http_client(connections=5, seconds=WAIT_SECONDS) as opened, asyncio.timeout(WAIT_SECONDS):
        yield opened


async def echo(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse(max_msg_size=2 * FRAME_BYTES)
    await socket.prepare(request)
    async for frame in socket:
        if frame.type is not WSMsgType.TEXT:
            break
        if frame.data == "close":
            await socket.close(code=4004)
        elif frame.data == "cut":
            assert request.transport is not None
            request.transport.abort()
        elif frame.data == "huge":
            with suppress(ConnectionError):  # it hangs up in the middle
                await socket.send_str("x" * (FRAME_BYTES + 1))
        elif frame.data != "silence":
            await socket.send_str(f"{request.headers['authorization']}: {frame.data}")
    return socket


async def test_frames_go_out_and_come_in(client: HttpClient) -> None:
    async with serving(echo) as url, client.websocket(url, {"authorization": "Bot 1"}) as socket:
        await socket.send("hello")
        assert await socket.receive() == "Bot 1: hello"


async def test_a_receive_that_is_cancelled_loses_no_frame(client: HttpClient) -> None:
    async with serving(echo) as url, client.websocket(url, {"authorization": "Bot 1"}) as socket:
        waiting = asyncio.create_task(socket.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await socket.send("hello")
        assert await socket.receive() == "Bot 1: hello"


@pytest.mark.parametrize(("said", "code"), [("close", 4004), ("cut", None), ("huge", WSCloseCode.MESSAGE_TOO_BIG)])
async def test_an_end_is_told_with_its_code(client: HttpClient, said: str, code: int | None) -> None:
    async with serving(echo) as url, client.websocket(url, {"authorization": "Bot 1"}) as socket:
        await socket.send(said)
        with pytest.raises(Closed) as caught:
            await socket.receive()
        assert caught.value.code == code or (code is None and caught.value.code == WSCloseCode.ABNORMAL_CLOSURE)
        with pytest.raises(Closed):
            await socket.send("more")


async def test_silence_is_given_up(client: HttpClient) -> None:
    async with serving(echo) as url, client.websocket(url, {"authorization": "Bot 1"}) as socket:
        await socket.send("silence")
        with pytest.raises(Transient, match="silent"):
            await socket.receive(seconds=0.05)


@pytest.mark.parametrize(("status", "error"), [(401, Denied), (403, Denied), (429, RateLimited), (500, Transient)])
@pytest.mark.parametrize("held", ["websocket", "lines"])
async def test_a_refused_connection_says_what_to_do(
    client: HttpClient, held: str, status: int, error: type[Exception]
) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"retry-after": "7"})

    async with serving(refuse) as url:
        with pytest.raises(error) as caught:
            await hold(client, held, url)
    assert not isinstance(caught.value, RateLimited) or caught.value.retry_after.total_seconds() == 7
    assert url not in repr(caught.value)


@pytest.mark.parametrize("held", ["websocket", "lines"])
async def test_a_held_connection_follows_nobody_elsewhere(client: HttpClient, held: str) -> None:
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if request.path == "/there":
            return await echo(request)
        raise web.HTTPFound("/there")

    async with serving(elsewhere) as url:
        with pytest.raises(Transient):
            await hold(client, held, f"{url}/here")
    assert asked == ["/here"]


async def hold(client: HttpClient, held: str, url: str) -> None:
    if held == "websocket":
        async with client.websocket(url, {}):
            pass
    else:
        async with client.lines(url, {}, silent_seconds=5):
            pass


async def test_a_connection_that_cannot_be_made_is_transient(client: HttpClient) -> None:
    for held in ("websocket", "lines"):
        with pytest.raises(Transient, match=r"no connection to 127\.0\.0\.1:9 \(Connection refused\)") as caught:
            await hold(client, held, "http://127.0.0.1:9/canary")
        assert "canary" not in str(caught.value)


async def test_lines_come_one_by_one_until_the_answer_ends_or_is_silent(client: HttpClient) -> None:
    goes_on = asyncio.Event()

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"event: a\r\ndata: 1\n\nda")
        await response.write(b"ta: 2\n")
        if request.path == "/silent":
            await goes_on.wait()
        return response

    async with serving(events) as url:
        for path, match in (("/ends", "ended"), ("/silent", "Timeout")):
            seen: list[bytes] = []
            with pytest.raises(Transient, match=match):
                await read_lines(client, f"{url}{path}", seen)
            assert seen == [b"event: a", b"data: 1", b"", b"data: 2"]
        goes_on.set()


async def read_lines(client: HttpClient, url: str, seen: list[bytes]) -> None:
    async with client.lines(url, {}, silent_seconds=0.3) as lines:
        async for line in lines:
            seen.append(line)


async def test_other_methods_than_post_can_be_asked(client: HttpClient) -> None:
    async def tell(request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"{request.method} {await request.text()}")

    async with serving(tell) as url:
        for method, body in (("GET", b""), ("PATCH", b"x"), ("PUT", b"y"), ("DELETE", b"")):
            answer = await client.request(method, url, body, {})
            assert (answer.status, answer.body.decode()) == (200, f"{method} {body.decode()}")


# -- answers that are read now and then


async def test_what_comes_while_a_connection_rests_is_one_chunk_and_then_it_is_used_again(client: HttpClient) -> None:
    rested, transports = asyncio.Event(), list[object]()

    async def in_parts(request: web.Request) -> web.StreamResponse:
        transports.append(request.transport)
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"a")
        await rested.wait()
        for part in (b"b", b"c", b"d"):
            await answer.write(part)
        return answer

    async with serving(in_parts) as url:
        for rest_ends in (True, False):
            rested.clear()
            async with client.post_stream(url, b"", {}, silent_seconds=WAIT_SECONDS) as stream:
                chunks = stream.chunks()
                assert await anext(chunks) == b"a"
                stream.rest(WAIT_SECONDS * 2)
                following = asyncio.ensure_future(anext(chunks))
                rested.set()
                assert not (await asyncio.wait({following}, timeout=0.2))[0]  # nobody reads what has come
                stream.go_on()
                assert await following == b"bcd"
                assert [chunk async for chunk in chunks] == []
                if not rest_ends:
                    stream.rest(WAIT_SECONDS)  # all has come: there is nothing to wait for
    assert len({id(transport) for transport in transports}) == 1
