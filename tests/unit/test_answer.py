"""A short answer leaves as one write, and says what Starlette's and uvicorn's would."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from producers.server.answer import WholeAnswer
from producers.server.connection import HttpConnection, Resting

BODY = b'{"status":"accepted"}'
POST = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
UNUSUAL = {
    "asks for an end": POST.replace(b"host: a", b"host: a\r\nconnection: close"),
    "HTTP/1.0": POST.replace(b"/1.1", b"/1.0"),
    "HEAD": b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n",
}


class Line(asyncio.Transport):
    """A connection to nobody, which keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def connected(response: Response, line: Line) -> HttpConnection:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await response(scope, receive, send)

    config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, date_header=False)
    config.load()
    connection = HttpConnection(Resting(), config=config, server_state=ServerState(), app_state={})
    connection.connection_made(line)
    return connection


async def written(response: Response, request: bytes = POST) -> Line:
    line = Line()
    connection = connected(response, line)
    connection.data_received(request)
    while connection.tasks:
        await asyncio.gather(*connection.tasks)
    connection.connection_lost(OSError())  # it ends without a word, so that only an answer can have closed it
    return line


async def test_an_answer_is_one_write() -> None:
    line = await written(WholeAnswer(BODY, 202, "application/json"))
    assert line.written == [
        b"HTTP/1.1 202 Accepted\r\ncontent-length: 21\r\ncontent-type: application/json\r\n\r\n" + BODY
    ]
    assert not line.closed


@pytest.mark.parametrize("request_bytes", [POST, *UNUSUAL.values()], ids=["usual", *UNUSUAL])
@pytest.mark.parametrize("body", [b"", BODY])
async def test_an_answer_says_what_starlettes_would(body: bytes, request_bytes: bytes) -> None:
    ours = await written(WholeAnswer(body, 200, "application/json"), request_bytes)
    theirs = await written(Response(body, 200, media_type="application/json"), request_bytes)
    assert b"".join(ours.written) == b"".join(theirs.written)
    assert ours.closed is theirs.closed


async def test_a_header_that_was_added_is_said() -> None:
    answer = WholeAnswer(BODY)
    answer.headers["vary"] = "origin"
    assert b"vary: origin\r\n" in b"".join((await written(answer)).written)


async def test_an_answer_waits_for_a_reader_that_takes_nothing() -> None:
    line = Line()
    connection = connected(WholeAnswer(BODY), line)
    connection.pause_writing()
    connection.data_received(POST)
    answering = asyncio.gather(*connection.tasks)
    await asyncio.sleep(0)
    assert line.written == []
    connection.resume_writing()
    await answering
    assert b"".join(line.written).endswith(BODY)
    connection.connection_lost(None)


async def test_nothing_is_written_to_a_sender_that_is_gone() -> None:
    line = Line()
    connection = connected(WholeAnswer(BODY), line)
    connection.data_received(POST)
    connection.connection_lost(None)
    await asyncio.gather(*connection.tasks)
    assert line.written == []


async def test_requests_that_came_together_are_answered_in_turn() -> None:
    assert len((await written(WholeAnswer(BODY), 3 * POST)).written) == 3
