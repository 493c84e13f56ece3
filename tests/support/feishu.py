"""A local Feishu: its open platform and its long connection on a real HTTP server. It shows chats what is sent, keeps what
is not acknowledged, and can be trouble.

It is as strict as Feishu where our code depends on it: tokens end, content is JSON in JSON of the shape of its type, a uuid is
taken once, a reply needs a message that is there. Every request is remembered as it came.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any

import orjson
from aiohttp import WSMsgType, web
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from producers.feishu.frames import CONTROL, DATA, FeishuFrame, decode, encode
from producers.server.bind import bind
from tests.support.uploads import FilesSent, Uploaded, parse_form

APP_ID, APP_SECRET = "cli_a1", "canary7f3a9cAppSecret"
BOT = "ou_bot"
POST_LIMIT, UUID_LENGTH = 30_000, 50
WAIT_SECONDS = 90.0
SERVICE = 33554678
CONFIG = {"PingInterval": 60, "ReconnectNonce": 0, "ReconnectInterval": 1, "ReconnectCount": -1}


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it arrived."""

    at: float
    method: str
    path: str
    query: dict[str, str]
    fields: dict[str, Any]


class Refused(Exception):
    """An answer that is no success, as Feishu words it."""

    def __init__(self, code: int, status: int = 400, **headers: str) -> None:
        super().__init__(code)
        self.code, self.status = code, status
        self.headers = {name.replace("_", "-"): text for name, text in headers.items()}


class Trouble(Enum):
    CUT = "taken, and the connection cut in the middle of the answer"
    PAGE = "a proxy's page instead of an answer, nothing taken"


@dataclass
class FakeFeishu:
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    shown: list[dict[str, Any]] = field(default_factory=list)  # what we sent, in order
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)  # what people wrote, by id: chat and thread
    trouble: deque[Refused | Trouble | None] = field(default_factory=deque)  # for the sends to come, one each
    opens: deque[int] = field(default_factory=deque)  # codes of the endpoint, one each
    files: FilesSent = field(default_factory=FilesSent)  # by key
    uploaded: dict[str, Uploaded] = field(default_factory=dict)  # what we gave, by key
    unreadable: int = 0  # the code with which a question for messages is refused
    token: str = ""
    token_seconds: int = 7200
    config: dict[str, Any] = field(default_factory=lambda: {**CONFIG})
    pong: dict[str, Any] | None = None  # a configuration that comes with a pong
    pending: dict[str, list[FeishuFrame]] = field(default_factory=dict)  # events that nobody has acknowledged
    answers: list[FeishuFrame] = field(default_factory=list)  # acknowledgements
    pings: list[FeishuFrame] = field(default_factory=list)
    is_silent: bool = False  # neither pongs nor events come
    connected: int = 0  # connections so far
    sockets: list[web.WebSocketResponse] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: count(1))
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    # -- what a test sees and does

    def sends(self) -> list[Call]:
        return [call for call in self.calls if call.method in ("POST", "PUT") and "/im/v1/messages" in call.path]

    def texts(self, chat: str) -> list[str]:
        return [message["text"] for message in self.shown if message["chat"] == chat]

    def of(self, end: str) -> list[Call]:
        return [call for call in self.calls if call.path.endswith(end)]

    async def until(self, true: Callable[[FakeFeishu], object], seconds: float = WAIT_SECONDS) -> None:
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: true(self))
        except TimeoutError:
            raise AssertionError(f"it did not come; there came {self.calls}") from None

    def forget(self) -> None:
        self.calls.clear()
        self.shown.clear()

    def expire_token(self) -> None:
        self.token = "t-none-any-more"

    async def bring(self, *payloads: Any, parts: int = 1, kind: str = "event") -> None:
        """Something happened in Feishu: it is sent until somebody acknowledges it."""
        for payload in payloads:
            await self.bring_raw(orjson.dumps(payload), parts=parts, kind=kind)

    async def bring_raw(self, payload: bytes, *, parts: int = 1, kind: str = "event") -> None:
        id = f"msg-{next(self._numbers)}"
        size = -(-len(payload) // parts)
        frames = []
        for n in range(parts):
            headers = {"type": kind, "message_id": id, "trace_id": "t", "sum": str(parts), "seq": str(n)}
            written = tuple((key.encode(), text.encode()) for key, text in headers.items())
            piece = payload[n * size : (n + 1) * size]
            frames.append(FeishuFrame(SERVICE, DATA, written, piece, 7, 2**63 + 5, log_id_new=b"new"))
        self.pending[id] = frames
        if self.sockets:
            await self._send(self.sockets[-1], frames)
        await self._notify()

    async def cut(self) -> None:
        """The connections end."""
        for socket in list(self.sockets):
            await socket.close()

    # -- the long connection

    async def connect(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        assert request.query["ticket"] == "canary7f3a9cTicket"
        self.sockets.append(socket)
        self.connected += 1
        for frames in list(self.pending.values()):
            await self._send(socket, frames)
        await self._notify()
        try:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    await self._hear(socket, decode(message.data))
        finally:
            self.sockets.remove(socket)
            await self._notify()
        return socket

    async def _hear(self, socket: web.WebSocketResponse, frame: FeishuFrame) -> None:
        if frame.method == CONTROL:
            self.pings.append(frame)
            if not self.is_silent:
                payload = orjson.dumps(self.pong) if self.pong is not None else None
                await socket.send_bytes(encode(FeishuFrame(SERVICE, CONTROL, ((b"type", b"pong"),), payload)))
        else:
            self.answers.append(frame)
            assert frame.payload is not None and orjson.loads(frame.payload)["code"] == 200
            self.pending.pop(frame.header("message_id"), None)
        await self._notify()

    async def _send(self, socket: web.WebSocketResponse, frames: list[FeishuFrame]) -> None:
        with suppress(ConnectionError):
            for frame in frames if not self.is_silent else ():
                await socket.send_bytes(encode(frame))

    async def endpoint(self, request: web.Request) -> web.Response:
        fields = orjson.loads(await request.read())
        self.calls.append(Call(time.monotonic(), "POST", request.path, {}, fields))
        if (fields["AppID"], fields["AppSecret"]) != (APP_ID, APP_SECRET):
            return web.json_response({"code": 514, "msg": "auth failed"})
        if self.opens:
            await self._notify()
            return web.json_response({"code": self.opens.popleft(), "msg": "no"})
        url = f"{self.url.replace('http', 'ws', 1)}/ws?device_id=1&service_id={SERVICE}&ticket=canary7f3a9cTicket"
        return web.json_response({"code": 0, "data": {"URL": url, "ClientConfig": self.config}})

    # -- the open platform

    async def issue(self, request: web.Request) -> web.Response:
        fields = orjson.loads(await request.read())
        self.calls.append(Call(time.monotonic(), "POST", request.path, {}, fields))
        if (fields["app_id"], fields["app_secret"]) != (APP_ID, APP_SECRET):
            return web.json_response({"code": 10014, "msg": "app secret invalid"})
        self.token = f"t-canary7f3a9c-{next(self._numbers)}"
        body = {"code": 0, "msg": "ok", "tenant_access_token": self.token, "expire": self.token_seconds}
        return web.json_response(body)

    async def resource(self, request: web.Request) -> web.Response:
        if request.headers.get("authorization") != f"Bearer {self.token}" or not self.token:
            return web.json_response({"code": 99991663, "msg": "token"}, status=400)
        key = request.match_info["key"]
        if key not in self.files:
            return web.json_response({"code": 234003, "msg": "file not in message"}, status=400)
        assert request.query["type"] in ("image", "file")
        return web.Response(body=self.files[key], content_type="application/octet-stream")

    async def upload(self, request: web.Request) -> web.Response:
        fields, files = parse_form(request.headers["content-type"], await request.read())
        if request.headers.get("authorization") != f"Bearer {self.token}" or not self.token:
            return web.json_response({"code": 99991663, "msg": "token"}, status=400)
        kind = "image" if request.path.endswith("/images") else "file"
        assert fields == (
            {"image_type": "message"} if kind == "image" else {"file_type": "stream", "file_name": files["file"].name}
        )
        key = f"{kind}_up{next(self._numbers)}"
        self.uploaded[key] = files[kind]
        return web.json_response({"code": 0, "data": {f"{kind}_key": key}})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = Call(time.monotonic(), request.method, request.path, dict(request.query), orjson.loads(body or b"{}"))
        self.calls.append(call)
        try:
            if request.headers.get("authorization") != f"Bearer {self.token}" or not self.token:
                raise Refused(99991663)
            if request.path.endswith("/bot/v3/info"):
                return web.json_response({"code": 0, "msg": "ok", "bot": {"open_id": BOT, "app_name": "Helper"}})
            if request.method == "GET" and self.unreadable:
                raise Refused(self.unreadable)
            if request.method == "GET":
                return web.json_response({"code": 0, "data": {"items": self._of_thread(call.query)}})
            trouble = self.trouble.popleft() if self.trouble else None
            if isinstance(trouble, Refused):
                raise trouble
            if trouble is Trouble.PAGE:
                return web.Response(text="<html><h1>502 Bad Gateway</h1></html>", status=502, content_type="text/html")
            message = self._taken(call, request.match_info.get("id"), len(body))
            if trouble is Trouble.CUT:
                return await _cut(request)
            return web.json_response({"code": 0, "msg": "success", "data": {"message_id": message["id"]}})
        except Refused as refused:
            answer = {"code": refused.code, "msg": f"refused {refused.code}"}
            return web.json_response(answer, status=refused.status, headers=refused.headers)
        finally:
            await self._notify()

    def _of_thread(self, query: dict[str, str]) -> list[dict[str, str]]:
        assert query["container_id_type"] == "thread"
        inside = [id for id, about in self.messages.items() if about["thread"] == query["container_id"]]
        return [{"message_id": id} for id in inside[: int(query["page_size"])]]

    def _taken(self, call: Call, id: str | None, size: int) -> dict[str, Any]:
        if call.method == "PATCH":  # of cards alone
            call.fields["msg_type"] = "interactive"
        content = _content(call.fields, size)
        if call.method in ("PUT", "PATCH"):
            for message in self.shown:
                if message["id"] == id:
                    if (message["kind"] == "interactive") != (call.method == "PATCH"):
                        raise Refused(230001)
                    message.update(content)
                    return message
            raise Refused(230001)
        uuid = call.fields["uuid"]
        assert 0 < len(uuid) <= UUID_LENGTH
        for message in self.shown:
            if message["uuid"] == uuid:
                return message
        if id is None:
            place = {"chat": call.fields["receive_id"], "thread": None, "answers": None}
        else:
            if id not in self.messages:
                raise Refused(230011)
            about, in_thread = self.messages[id], call.fields["reply_in_thread"]
            place = {"chat": about["chat"], "thread": about["thread"] if in_thread else None, "answers": id}
        message = {"id": f"om_sent{next(self._numbers)}", "uuid": uuid, **place, **content}
        self.shown.append(message)
        return message

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _content(fields: dict[str, Any], size: int) -> dict[str, Any]:
    """What the chat shows of a message."""
    content = orjson.loads(fields["content"])
    if fields["msg_type"] in ("image", "file"):
        return {"text": "", "href": content[f"{fields['msg_type']}_key"], "kind": fields["msg_type"]}
    if fields["msg_type"] == "interactive":
        text, *more = content["elements"]
        buttons = [(one["text"]["content"], one["value"]) for element in more for one in element["actions"]]
        shown: dict[str, Any] = {"text": text["content"], "href": None, "buttons": buttons}
    elif fields["msg_type"] == "text":
        shown = {"text": content["text"], "href": None}
    else:
        [[element]] = content["zh_cn"]["content"]
        assert element["tag"] in ("md", "a")
        shown = {"text": element["text"], "href": element.get("href")}
    if not shown["text"].strip():
        raise Refused(230001)
    if size > POST_LIMIT:
        raise Refused(230025)
    return {**shown, "kind": fields["msg_type"]}


async def _cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-length": "1000", "content-type": "application/json"})
    await response.prepare(request)
    await response.write(b"{")
    assert request.transport is not None
    request.transport.abort()
    return response


def encrypted(body: bytes, key: str) -> bytes:
    """A body as Feishu encrypts it."""
    padding = 16 - len(body) % 16
    start = os.urandom(16)
    cipher = Cipher(algorithms.AES(hashlib.sha256(key.encode()).digest()), modes.CBC(start)).encryptor()
    data = start + cipher.update(body + bytes([padding]) * padding) + cipher.finalize()
    return orjson.dumps({"encrypt": base64.b64encode(data).decode()})


def signed(body: bytes, key: str, nonce: str = "n1", *, ahead: int = 0) -> dict[str, str]:
    """The headers of Feishu's request with this body, as if it were `ahead` seconds later."""
    at = str(int(time.time()) + ahead)
    digest = hashlib.sha256(b"".join((at.encode(), nonce.encode(), key.encode(), body))).hexdigest()
    return {"X-Lark-Request-Timestamp": at, "X-Lark-Request-Nonce": nonce, "X-Lark-Signature": digest}


@asynccontextmanager
async def open_feishu(port: int = 0) -> AsyncIterator[FakeFeishu]:
    """An open platform that answers at `feishu.url` until the block ends."""
    fake = FakeFeishu()
    listening = bind("127.0.0.1", port)
    fake.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    messages = "/open-apis/im/v1/messages"
    app = web.Application()
    app.add_routes(
        [
            web.post("/open-apis/auth/v3/tenant_access_token/internal", fake.issue),
            web.get("/open-apis/bot/v3/info", fake.answer),
            web.get(messages, fake.answer),
            web.post(messages, fake.answer),
            web.post(messages + "/{id}/reply", fake.answer),
            web.put(messages + "/{id}", fake.answer),
            web.patch(messages + "/{id}", fake.answer),
            web.get(messages + "/{id}/resources/{key}", fake.resource),
            web.post("/open-apis/im/v1/images", fake.upload),
            web.post("/open-apis/im/v1/files", fake.upload),
            web.post("/callback/ws/endpoint", fake.endpoint),
            web.get("/ws", fake.connect),
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    try:
        yield fake
    finally:
        await fake.cut()
        await runner.cleanup()
        listening.close()
