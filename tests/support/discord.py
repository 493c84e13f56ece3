"""A local Discord: its HTTP API and its gateway on one port, with sessions that are resumed, and trouble on demand.

It is as strict as Discord where our code depends on it: tokens, one identify or resume per connection, 2000 characters,
channels that exist, nonces. Every request and every frame is remembered as it came.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import orjson
from aiohttp import WSMsgType, web

from producers.server.bind import bind
from tests.support.uploads import FilesSent, Uploaded, parse_form

TOKEN = "OTk.canary.gateway-7f3a9c_secret"  # of the bot 99
ME = {"id": "99", "username": "helper", "global_name": "Helper", "discriminator": "0", "avatar": None, "bot": True}
TEXT_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it arrived."""

    at: float
    method: str
    path: str
    fields: dict[str, Any]
    headers: dict[str, str]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


class Refused(Exception):
    """An answer that is no success, as Discord words it."""

    def __init__(self, status: int, code: int, text: str = "no", **beside: Any) -> None:
        super().__init__(text)
        self.status, self.headers = status, beside.pop("headers", {})
        self.body = {"code": code, "message": text, **beside}


def rate_limited(seconds: float, *, everywhere: bool = False) -> Refused:
    headers = {"Retry-After": str(int(seconds) + 1), "X-RateLimit-Scope": "global" if everywhere else "user"}
    return Refused(
        429, 0, "You are being rate limited.", retry_after=seconds, headers=headers, **{"global": everywhere}
    )


class Trouble(Enum):
    CUT = "taken, and the connection cut in the middle of the answer"
    PAGE = "a proxy's page instead of an answer, nothing taken"


@dataclass
class Link:
    """One connection of the gateway."""

    socket: web.WebSocketResponse
    session: str = ""
    beats: int = 0
    closed_with: int | None = None


@dataclass
class FakeDiscord:
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    shown: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # channel -> messages
    originals: dict[str, dict[str, Any]] = field(default_factory=dict)  # interaction token -> what took its place
    channels: dict[str, dict[str, Any]] = field(default_factory=dict)  # that GET /channels finds
    members: dict[str, dict[str, Any]] = field(default_factory=dict)  # guild -> our member there
    absent: set[str] = field(default_factory=set)  # channels where the bot is not
    archived: set[str] = field(default_factory=set)
    application: dict[str, Any] = field(default_factory=lambda: {"id": "99", "flags": 1 << 19, "verify_key": "ab" * 32})
    endpoint_answers: bool = True  # whether the address for interactions can be set
    guilds: list[dict[str, Any]] = field(default_factory=list)  # told after READY
    trouble: deque[Refused | Trouble | None] = field(default_factory=deque)  # for the writes to come, one each
    questions: deque[Refused] = field(default_factory=deque)  # the same for GET
    headers: dict[str, str] = field(default_factory=dict)  # of every answer
    files: FilesSent = field(default_factory=FilesSent)  # attachments, by path
    uploaded: list[Uploaded] = field(default_factory=list)  # what we sent
    remaining: int = 1000
    # the gateway
    links: list[Link] = field(default_factory=list)
    begun: list[dict[str, Any]] = field(default_factory=list)  # identify and resume frames
    sessions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # session -> dispatches, in order
    interval_ms: int = 20_000
    acknowledges: bool = True
    resume_url: str | None = None  # that READY gives; None: ours
    greets_with: deque[int | dict[str, Any]] = field(
        default_factory=deque
    )  # instead of READY: a close code, or a frame
    _nonces: dict[str, dict[str, Any]] = field(default_factory=dict)
    _next_id: int = 1_500_000_000_000_000_000
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)

    # -- what a test sees and does

    def of(self, name: str) -> list[dict[str, Any]]:
        return [call.fields for call in self.calls if call.name == name]

    def sent(self, channel: str) -> list[dict[str, Any]]:
        return self.of(f"POST /channels/{channel}/messages")

    def texts(self, channel: str) -> list[str]:
        return [message["content"] for message in self.shown.get(channel, ())]

    async def until(self, true: Callable[[FakeDiscord], object], seconds: float = 90) -> None:
        try:
            async with asyncio.timeout(seconds), self._came:
                await self._came.wait_for(lambda: true(self))
        except TimeoutError:
            raise AssertionError(f"it did not come; there came {self.calls} and {self.begun}") from None

    def forget(self) -> None:
        self.calls.clear()
        self.shown.clear()

    async def happen(self, kind: str, data: Any) -> None:
        """Something happened: every session hears of it, now or when it is resumed."""
        for session in self.sessions:
            await self._dispatch(session, kind, data)

    async def say(self, frame: dict[str, Any] | str) -> None:
        """Send a frame as it is to whoever is connected."""
        text = frame if isinstance(frame, str) else orjson.dumps(frame).decode()
        for link in self.links:
            if not link.socket.closed:
                await link.socket.send_str(text)

    async def hang_up(self, code: int = 4000) -> None:
        for link in self.links:
            if not link.socket.closed:
                await link.socket.close(code=code)
        await self._notify()

    def forget_sessions(self) -> None:
        self.sessions.clear()

    @property
    def live(self) -> list[Link]:
        return [link for link in self.links if not link.socket.closed and link.session]

    # -- what Discord does: the HTTP API

    async def _notify(self) -> None:
        async with self._came:
            self._came.notify_all()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.path.startswith("/attachments/"):
            assert "authorization" not in request.headers
            if request.path not in self.files:
                return web.Response(status=404)
            return web.Response(body=self.files[request.path], content_type="application/octet-stream")
        if request.content_type == "multipart/form-data":
            fields, files = parse_form(request.headers["content-type"], body)
            body = fields["payload_json"].encode()
            self.uploaded.append(files["files[0]"])
        call = Call(
            time.monotonic(), request.method, request.path, orjson.loads(body) if body else {}, dict(request.headers)
        )
        self.calls.append(call)
        try:
            return await self._answer(call)
        except Refused as refused:
            return web.json_response(refused.body, status=refused.status, headers={**self.headers, **refused.headers})
        finally:
            await self._notify()

    async def _answer(self, call: Call) -> web.StreamResponse:
        parts = call.path.strip("/").split("/")
        if parts[0] not in ("webhooks", "interactions") and call.headers.get("Authorization") != f"Bot {TOKEN}":
            raise Refused(401, 0, "401: Unauthorized")
        if call.method == "GET" and self.questions:
            raise self.questions.popleft()
        trouble = self.trouble.popleft() if self.trouble and call.method != "GET" and parts[-1] != "typing" else None
        if isinstance(trouble, Refused):
            raise trouble
        if trouble is Trouble.PAGE:
            return web.Response(text="<html>502 Bad Gateway</html>", status=502, content_type="text/html")
        result = self._do(call, parts)
        if trouble is Trouble.CUT:
            cut = web.Response(body=b"{", headers={"content-length": "1000"})
            cut.force_close()
            return cut
        if result is None:
            return web.Response(status=204, headers=self.headers)
        return web.json_response(result, headers=self.headers)

    def _do(self, call: Call, parts: list[str]) -> dict[str, Any] | None:
        match call.method, parts:
            case "GET", ["gateway", "bot"]:
                limit = {"total": 1000, "remaining": self.remaining, "reset_after": 2000, "max_concurrency": 1}
                ws = self.url.replace("http", "ws", 1) + "/ws"
                return {"url": ws, "shards": 1, "session_start_limit": limit}
            case "GET", ["users", "@me"]:
                return dict(ME)
            case "GET", ["applications", "@me"]:
                return self.application
            case "PATCH", ["applications", "@me"]:
                if not self.endpoint_answers:
                    raise Refused(400, 50035, "Invalid Form Body")
                self.application |= call.fields
                return self.application
            case "POST", ["users", "@me", "channels"]:
                return {"id": f"7{call.fields['recipient_id']}", "type": 1}
            case "GET", ["channels", id]:
                return self._found(self.channels, id, 10003)
            case "GET", ["guilds", id, "members", "99"]:
                return self._found(self.members, id, 10004)
            case "POST", ["channels", id, "typing"]:
                return None
            case "PATCH", ["channels", id]:
                self.archived.discard(id)
                return {"id": id, "type": 11}
            case "POST", ["channels", id, "messages"]:
                return self._create(id, call.fields)
            case "PATCH", ["channels", id, "messages", message]:
                return self._edit(id, message, call.fields)
            case "POST", ["interactions", _, token, "callback"]:
                self.originals[token] = call.fields
                return None
            case "PATCH", ["webhooks", "99", token, "messages", "@original"]:
                return self._original(token, call.fields)
            case "POST", ["webhooks", "99", token]:
                if token not in self.originals:
                    raise Refused(404, 10015, "Unknown Webhook")
                return self._show("followed", call.fields)
        raise Refused(404, 0, "404: Not Found")

    @staticmethod
    def _found(among: dict[str, dict[str, Any]], id: str, code: int) -> dict[str, Any]:
        if id not in among:
            raise Refused(404, code, "Unknown")
        return among[id]

    def _create(self, channel: str, fields: dict[str, Any]) -> dict[str, Any]:
        if channel in self.absent:
            raise Refused(403, 50001, "Missing Access")
        if channel in self.archived:
            raise Refused(400, 50083, "Thread is archived")
        nonce = fields.get("nonce")
        if nonce is not None and len(str(nonce)) > 25:
            raise Refused(400, 50035, "Invalid Form Body")
        if fields.get("enforce_nonce") and nonce in self._nonces:
            return self._nonces[nonce]
        message = self._show(channel, fields)
        if nonce is not None:
            self._nonces[nonce] = message
        return message

    def _show(self, channel: str, fields: dict[str, Any]) -> dict[str, Any]:
        beside = {"flags": fields.get("flags", 0), "components": _components(fields)}
        message = a_message(self._fresh_id(), channel, _checked(fields), ME, **beside)
        if "message_reference" in fields:
            message |= {"type": 19, "message_reference": {**fields["message_reference"], "channel_id": channel}}
        self.shown.setdefault(channel, []).append(message)
        return message

    def _edit(self, channel: str, id: str, fields: dict[str, Any]) -> dict[str, Any]:
        for message in self.shown.get(channel, ()):
            if message["id"] == id:
                message |= {"content": _checked(fields), "edited_timestamp": "2026-01-01T00:01:00.000000+00:00"}
                if "components" in fields:  # what is not named stays
                    message["components"] = _components(fields)
                return message
        raise Refused(404, 10008, "Unknown Message")

    def _original(self, token: str, fields: dict[str, Any]) -> dict[str, Any]:
        if token not in self.originals:
            raise Refused(404, 10015, "Unknown Webhook")
        self.originals[token] = a_message(self._fresh_id(), "original", _checked(fields), ME)
        return self.originals[token]

    def _fresh_id(self) -> str:
        self._next_id += 1 << 22
        return str(self._next_id)

    # -- the gateway

    async def connect(self, request: web.Request) -> web.WebSocketResponse:
        assert dict(request.query) == {"v": "10", "encoding": "json"}
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        link = Link(socket)
        self.links.append(link)
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": self.interval_ms}, "s": None, "t": None})
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await self._frame(link, orjson.loads(message.data))
            await self._notify()
        link.closed_with = socket.close_code
        await self._notify()
        return socket

    async def _frame(self, link: Link, frame: dict[str, Any]) -> None:
        if frame["op"] == 1:
            link.beats += 1
            if self.acknowledges:
                await link.socket.send_json({"op": 11, "d": None, "s": None, "t": None})
            return
        self.begun.append(frame)
        if self.greets_with:
            greeting = self.greets_with.popleft()
            if isinstance(greeting, int):
                await link.socket.close(code=greeting)
            else:
                await link.socket.send_json(greeting)
        elif frame["d"]["token"] != TOKEN:
            await link.socket.close(code=4004)
        elif frame["op"] == 2:
            await self._identified(link)
        else:
            await self._resumed(link, frame["d"])

    async def _identified(self, link: Link) -> None:
        link.session = f"session-{len(self.begun)}"
        self.sessions[link.session] = []
        url = self.resume_url if self.resume_url is not None else self.url.replace("http", "ws", 1) + "/ws"
        ready = {"v": 10, "user": ME, "session_id": link.session, "resume_gateway_url": url, "guilds": []}
        await self._dispatch(link.session, "READY", ready)
        for guild in self.guilds:
            await self._dispatch(link.session, "GUILD_CREATE", guild)

    async def _resumed(self, link: Link, asked: dict[str, Any]) -> None:
        if asked["session_id"] not in self.sessions:
            await link.socket.send_json({"op": 9, "d": False, "s": None, "t": None})
            return
        link.session = asked["session_id"]
        for frame in self.sessions[link.session][asked["seq"] :]:
            await link.socket.send_json(frame)
        await self._dispatch(link.session, "RESUMED", {"_trace": []})

    async def _dispatch(self, session: str, kind: str, data: Any) -> None:
        happened = self.sessions[session]
        frame = {"op": 0, "t": kind, "s": len(happened) + 1, "d": data}
        happened.append(frame)
        for link in self.links:
            if link.session == session and not link.socket.closed:
                await link.socket.send_json(frame)


def a_message(id: str, channel: str, content: str, author: dict[str, Any], **beside: Any) -> dict[str, Any]:
    """A message object as Discord words it."""
    return {
        "id": id,
        "channel_id": channel,
        "type": 0,
        "author": author,
        "content": content,
        "timestamp": "2026-01-01T00:00:00.000000+00:00",
        "edited_timestamp": None,
        "tts": False,
        "mention_everyone": False,
        "mentions": [],
        "mention_roles": [],
        "attachments": [],
        "embeds": [],
        "pinned": False,
        "flags": 0,
        "components": [],
        **beside,
    }


def _components(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of buttons, as strictly as Discord takes them."""
    rows: list[dict[str, Any]] = fields.get("components", [])
    buttons = [button for row in rows for button in row["components"]]
    fits = all(0 < len(button["label"]) <= 80 and 0 < len(button["custom_id"]) <= 100 for button in buttons)
    if not fits or len(rows) > 5 or any(not 0 < len(row["components"]) <= 5 for row in rows):
        raise Refused(400, 50035, "Invalid Form Body")
    if len({button["custom_id"] for button in buttons}) < len(buttons):
        raise Refused(400, 50035, "Invalid Form Body")
    return rows


def _checked(fields: dict[str, Any]) -> str:
    content = str(fields.get("content", ""))
    if not content.strip() and not fields.get("attachments"):
        raise Refused(400, 50006, "Cannot send an empty message")
    if len(content.encode("utf-16-le")) // 2 > TEXT_LIMIT:
        raise Refused(400, 50035, "Invalid Form Body")
    return content


@asynccontextmanager
async def open_discord(port: int = 0) -> AsyncIterator[FakeDiscord]:
    """A Discord that answers at `discord.url` until the block ends."""
    fake = FakeDiscord()
    listening = bind("127.0.0.1", port)
    fake.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    app = web.Application()
    app.router.add_get("/ws", fake.connect)
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    try:
        yield fake
    finally:
        await fake.hang_up()
        await runner.cleanup()
