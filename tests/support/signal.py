"""A local signal-cli daemon: JSON-RPC and a stream of events, as strict as the daemon where our code depends on it.

With `remembers` it keeps its last events for a client that comes back, as newer daemons do; without, an event that nobody
listens to is gone. Every call is remembered as it came.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any
from urllib.parse import unquote

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from producers.server.bind import bind
from tests.support.telegram_html import units
from tests.support.uploads import FilesSent, Uploaded

ACCOUNT, OWN_UUID = "+15550001111", "9c0e1a2b-0000-4000-8000-000000000001"
ANN, ANN_UUID = "+15552223333", "2f3a4b5c-0000-4000-8000-000000000002"
GROUP = "Pmpi+EfPWmsxiomLe9Nx2XF9HOE483p6iKiFj65iMwI="
BODY_BYTES = 2000
STYLES = {"BOLD", "ITALIC", "STRIKETHROUGH", "SPOILER", "MONOSPACE"}
_times = count(1767225601000)


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it arrived."""

    at: float
    method: str
    fields: dict[str, Any]


class Refused(Exception):
    """An answer that is an error of JSON-RPC's."""

    def __init__(self, code: int, text: str = "no", *results: dict[str, Any]) -> None:
        super().__init__(text)
        self.error: dict[str, Any] = {"code": code, "message": text}
        if results:
            self.error["data"] = {"response": {"timestamp": 1, "results": list(results)}}

    @property
    def body(self) -> bytes:
        return orjson.dumps({"jsonrpc": "2.0", "id": "send", "error": self.error})


class Trouble(Enum):
    CUT = "taken, and the connection cut in the middle of the answer"


@dataclass
class FakeSignal:
    url: str = ""
    remembers: bool = True
    calls: list[Call] = field(default_factory=list)
    shown: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # person or group -> messages
    results: deque[list[dict[str, Any]]] = field(default_factory=deque)  # recipient by recipient, for the sends to come
    trouble: deque[Refused | Trouble | None] = field(default_factory=deque)  # for the sends to come, one each
    files: FilesSent = field(default_factory=FilesSent)  # by id
    listeners: int = 0
    asked_behind: list[str] = field(default_factory=list)  # the ids of the last events that listeners said they knew
    _events: list[bytes] = field(default_factory=list)
    _cut: int = 0
    _ending: bool = False
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)

    # -- what a test sees and does

    def of(self, method: str) -> list[dict[str, Any]]:
        return [call.fields for call in self.calls if call.method == method]

    def texts(self, to: str) -> list[str]:
        return [message["message"] for message in self.shown.get(to, ())]

    async def until(self, true: Callable[[FakeSignal], object], seconds: float = 90) -> None:
        try:
            async with asyncio.timeout(seconds), self._came:
                await self._came.wait_for(lambda: true(self))
        except TimeoutError:
            raise AssertionError(f"it did not come; there came {self.calls}") from None

    async def bring(self, *payloads: Any) -> None:
        await self.bring_raw(*(orjson.dumps(payload) for payload in payloads))

    async def bring_raw(self, *bodies: bytes) -> None:
        """Something happened in Signal."""
        if not self.remembers or not self.asked_behind:  # Signal keeps it until a daemon asks for the first time
            await self.until(lambda fake: fake.listeners)
        self._events += bodies
        await self._notify()

    def remember(self, *payloads: Any) -> None:
        """The daemon handed these over to somebody else, before we came."""
        self._events += [orjson.dumps(payload) for payload in payloads]

    async def cut(self) -> None:
        """The daemon ends the connections that it has."""
        self._cut += 1
        await self._notify()

    # -- what the daemon does

    async def _notify(self) -> None:
        async with self._came:
            self._came.notify_all()

    async def events(self, request: Request) -> Response:
        if request.query_params.get("account") != ACCOUNT:
            return Response("account", 400)
        known = request.headers.get("last-event-id", "")
        self.asked_behind.append(known)
        at = len(self._events)
        if self.remembers and known:
            at = int(known.removeprefix("run-")) if known.startswith("run-") else 0
        return StreamingResponse(self._stream(at), media_type="text/event-stream")

    async def _stream(self, at: int) -> AsyncIterator[bytes]:
        mine, self.listeners = self._cut, self.listeners + 1
        try:
            yield b":\n"
            await self._notify()
            while mine == self._cut and not self._ending:
                while at < len(self._events):
                    at += 1
                    id = b"id:run-%d\n" % at if self.remembers else b""
                    yield id + b"event:receive\ndata:" + self._events[at - 1] + b"\n\n"
                await self._more(at, mine)
        finally:
            self.listeners -= 1

    async def _more(self, at: int, mine: int) -> None:
        async with self._came:
            await self._came.wait_for(lambda: at < len(self._events) or mine != self._cut or self._ending)

    async def rpc(self, request: Request) -> Response:
        if request.headers.get("content-type") != "application/json":
            return Response("content type", 415)
        asked = orjson.loads(await request.body())
        call = Call(time.monotonic(), asked["method"], asked["params"])
        self.calls.append(call)
        answer = {"jsonrpc": "2.0", "id": asked["id"]}
        try:
            if call.fields.pop("account") != ACCOUNT:
                raise Refused(-32602, "Specified account does not exist")
            if call.method == "version":
                return JSONResponse({**answer, "result": {"version": "0.14.1"}})
            if call.method == "sendTyping":
                return JSONResponse({**answer, "result": {"timestamp": 1}})
            if call.method == "getAttachment":
                if call.fields["id"] not in self.files or ("recipient" in call.fields) == ("groupId" in call.fields):
                    raise Refused(-1, "Could not find attachment")
                data = base64.b64encode(self.files[call.fields["id"]]).decode()
                return JSONResponse({**answer, "result": {"data": data}})
            return self._send(call, answer)
        except Refused as refused:
            return JSONResponse({**answer, "error": refused.error})
        finally:
            await self._notify()

    def _send(self, call: Call, answer: dict[str, Any]) -> Response:
        if call.method != "send":
            raise Refused(-32601, "Method not implemented")
        trouble = self.trouble.popleft() if self.trouble else None
        if isinstance(trouble, Refused):
            raise trouble
        fields = call.fields
        _check(fields)
        to = fields["groupId"] if "groupId" in fields else fields["recipient"][0]
        results = self.results.popleft() if self.results else [{"type": "SUCCESS", "recipientAddress": {}}]
        sent_at = next(_times)
        if any(result["type"] == "SUCCESS" for result in results):
            self._show(to, fields, sent_at)
        if trouble is Trouble.CUT:
            return Response(b"{", headers={"content-length": "1000"})
        return JSONResponse({**answer, "result": {"timestamp": sent_at, "results": results}})

    def _show(self, to: str, fields: dict[str, Any], sent_at: int) -> None:
        messages = self.shown.setdefault(to, [])
        if "editTimestamp" not in fields:
            messages.append({**fields, "timestamp": sent_at})
            return
        found = [message for message in messages if message["timestamp"] == fields["editTimestamp"]]
        if not found:
            raise Refused(-1, "Message to edit not found")
        found[0]["message"] = fields["message"]


def _check(fields: dict[str, Any]) -> None:
    if ("groupId" in fields) == ("recipient" in fields) or not isinstance(fields.get("recipient", []), list):
        raise Refused(-1, "No recipients given")
    if not fields["message"] and not fields.get("attachments"):
        raise Refused(-1, "No message text given")
    if len(fields["message"].encode()) > BODY_BYTES:
        raise Refused(-1, "too long for one piece")
    for style in fields.get("textStyle", ()):
        start, length, name = style.split(":")
        if name not in STYLES or int(length) < 1 or int(start) + int(length) > units(fields["message"]):
            raise Refused(-1, f"Invalid style {style}")
    if ("quoteTimestamp" in fields) != ("quoteAuthor" in fields):
        raise Refused(-1, "Missing parameter for quote")


@asynccontextmanager
async def open_signal(*, remembers: bool = True, port: int = 0) -> AsyncIterator[FakeSignal]:
    """A daemon that answers at `fake.url` until the block ends."""
    fake = FakeSignal(remembers=remembers)
    listening = bind("127.0.0.1", port)
    fake.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    routes = [Route("/api/v1/events", fake.events), Route("/api/v1/rpc", fake.rpc, methods=["POST"])]
    config = uvicorn.Config(Starlette(routes=routes), log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield fake
    finally:
        fake._ending = True
        await fake._notify()
        server.should_exit = server.force_exit = True
        await serving
        listening.close()


def an_event(text: str | None, sent_at: int, person: tuple[str | None, str] = (ANN, ANN_UUID), **more: Any) -> Any:
    """Somebody writes to the bot; `more` is for the dataMessage."""
    number, uuid = person
    envelope = {
        "source": number or uuid,
        "sourceNumber": number,
        "sourceUuid": uuid,
        "sourceName": "Ann",
        "sourceDevice": 1,
        "timestamp": sent_at,
        "serverReceivedTimestamp": sent_at + 77,
        "dataMessage": {"timestamp": sent_at, "message": text, "expiresInSeconds": 0, "viewOnce": False, **more},
    }
    return {"account": ACCOUNT, "envelope": envelope}


def in_group(**more: Any) -> dict[str, Any]:
    return {"groupInfo": {"groupId": GROUP, "groupName": "Ops", "revision": 4, "type": "DELIVER"}, **more}


def attached(address: str) -> Uploaded:
    """A file as signal-cli takes it: a data address with a name."""
    head, _, data = address.removeprefix("data:").partition(";base64,")
    kind, _, name = head.partition(";filename=")
    return Uploaded(unquote(name), kind, base64.b64decode(data, validate=True))
