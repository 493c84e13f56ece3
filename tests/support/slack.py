"""A local Slack: a Web API and Socket Mode on a real HTTP server. It shows channels what is sent, keeps what is not
acknowledged, and can be trouble.

It is as strict as Slack where our code depends on it: questions are forms, blocks are valid, an edit has a limit, threads hang
under a message and never under a reply. Every request is remembered as it came.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any
from urllib.parse import parse_qsl

import orjson
from aiohttp import WSMsgType, web
from slack_sdk.errors import SlackObjectFormationError
from slack_sdk.models.blocks import Block

from producers.server.bind import bind
from producers.slack.signature import sign
from tests.support.uploads import FilesSent, Uploaded, a_png, parse_form

BOT_TOKEN = "xoxb-1-2-canary7f3a9cBotToken"
APP_TOKEN = "xapp-1-A01APP-3-canary7f3a9cAppToken"
SIGNING_SECRET = "canary7f3a9c0000signing0secret00"
BOT, BOT_ID, TEAM = "U0BOT", "B0BOT", "T01TEAM"
EDIT_LIMIT, TEXT_LIMIT = 4000, 40_000
SENDS = ("chat.postMessage", "chat.update")
CHANGES = (*SENDS, "files.completeUploadExternal")  # taken as JSON
QUESTIONS = ("auth.test", "apps.connections.open")  # taken without fields
WAIT_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it arrived."""

    at: float
    method: str
    fields: dict[str, Any]


class Refused(Exception):
    """An answer that is no success, as Slack words it."""

    def __init__(self, error: str, status: int = 200, retry_after: int | None = None) -> None:
        super().__init__(error)
        self.error, self.status, self.retry_after = error, status, retry_after


class Trouble(Enum):
    CUT = "taken, and the connection cut in the middle of the answer"
    PAGE = "a proxy's page instead of an answer, nothing taken"


class Link:
    """One Socket Mode connection, as Slack sees it."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket
        self.is_leaving = False
        self.is_frozen = False

    @property
    def is_open(self) -> bool:
        return not self.socket.closed and not self.is_leaving and not self.is_frozen


@dataclass
class FakeSlack:
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    shown: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # channel -> messages
    channels: dict[str, dict[str, Any]] = field(default_factory=dict)
    people: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    contents: FilesSent = field(default_factory=FilesSent)  # of files, by id
    shown_as: dict[str, str] = field(default_factory=dict)  # the types that they come with, where it is another one
    uploaded: dict[str, Uploaded] = field(default_factory=dict)  # files that we gave, by id
    scopes_missing: set[str] = field(default_factory=set)  # methods that the token may not use
    failing: dict[str, Refused] = field(default_factory=dict)  # what each of these methods answers
    trouble: deque[Refused | Trouble | None] = field(default_factory=deque)  # for the sends to come, one each
    opens: deque[Refused] = field(default_factory=deque)  # the same for apps.connections.open
    links: list[Link] = field(default_factory=list)
    pending: dict[str, dict[str, Any]] = field(default_factory=dict)  # envelopes that nobody has acknowledged
    raw: list[bytes] = field(default_factory=list)  # frames that are sent once, as they are
    most_links: int = 0  # connections that were there at once
    pings: int = 0  # that were answered
    _sent_on: dict[str, Link] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _numbers: Any = field(default_factory=lambda: count(1))

    # -- what a test sees and does

    def of(self, method: str) -> list[dict[str, Any]]:
        return [call.fields for call in self.calls if call.method == method]

    def texts(self, channel: str) -> list[str]:
        """What people read, escapes undone."""
        return [unescaped(message["text"]) for message in self.shown.get(channel, ())]

    async def until(self, true: Callable[[FakeSlack], object], seconds: float = WAIT_SECONDS) -> None:
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: true(self))
        except TimeoutError:
            raise AssertionError(f"it did not come; there came {self.calls}") from None

    def forget(self) -> None:
        self.calls.clear()
        self.shown.clear()

    async def bring(self, *payloads: dict[str, Any], kind: str = "events_api") -> None:
        """Something happened in Slack: it is sent by Socket Mode until somebody acknowledges it."""
        for payload in payloads:
            id = f"env-{next(self._numbers)}"
            self.pending[id] = {"envelope_id": id, "type": kind, "payload": payload, "accepts_response_payload": False}
        await self._flush()

    async def bring_raw(self, frame: bytes) -> None:
        self.raw.append(frame)
        await self._flush()

    async def disconnect(self, reason: str = "refresh_requested", *, close: bool = False) -> None:
        """Tell the connection that is read that it will be closed; close it at once, or leave it open."""
        link = next(link for link in self.links if link.is_open)
        link.is_leaving = True
        await link.socket.send_json({"type": "disconnect", "reason": reason, "debug_info": {"host": "wss-1"}})
        if close:
            await link.socket.close()
        await self._notify()

    async def freeze(self) -> None:
        """Nothing comes from the connections that are open any more, not even the answer to a ping."""
        for link in self.links:
            link.is_frozen = True
        await self._notify()

    def open_links(self) -> int:
        return sum(link.is_open for link in self.links)

    # -- Socket Mode

    async def _flush(self) -> None:
        link = next((link for link in reversed(self.links) if link.is_open), None)
        if link is not None:
            while self.raw:
                await link.socket.send_bytes(self.raw.pop(0))
            for id, envelope in list(self.pending.items()):
                before = self._sent_on.get(id)
                if before is None or before.socket.closed:
                    self._sent_on[id] = link
                    again = {"retry_attempt": 1, "retry_reason": "timeout"} if before is not None else {}
                    with suppress(ConnectionError):
                        await link.socket.send_json({**envelope, **again})
        await self._notify()

    async def connect(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        link = Link(socket)
        info = {"num_connections": 1 + self.open_links(), "connection_info": {"app_id": "A01APP"}}
        await socket.send_json({"type": "hello", **info, "debug_info": {"approximate_connection_time": 18060}})
        self.links.append(link)
        self.most_links = max(self.most_links, len(self.links))
        await self._flush()
        try:
            await self._listen(link)
        finally:
            await socket.close()
            self.links.remove(link)
            await self._flush()
        return socket

    async def _listen(self, link: Link) -> None:
        while True:
            message = await link.socket.receive()
            if message.type in (WSMsgType.PING, WSMsgType.PONG):
                if message.type is WSMsgType.PING and not link.is_frozen:
                    await link.socket.pong(message.data)
                    self.pings += 1
                    await self._notify()
                continue
            if message.type is not WSMsgType.TEXT:
                return
            acknowledged = orjson.loads(message.data)
            assert set(acknowledged) == {"envelope_id"}
            self.pending.pop(acknowledged["envelope_id"], None)
            await self._notify()

    # -- the Web API

    async def answer(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        call = Call(time.monotonic(), method, await _fields(request, method))
        self.calls.append(call)
        token = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        try:
            if request.headers.get("authorization") != f"Bearer {token}":
                raise Refused("invalid_auth")
            if method in self.scopes_missing:
                raise Refused("missing_scope")
            if method in self.failing:
                raise self.failing[method]
            trouble = self.trouble.popleft() if self.trouble and method in SENDS else None
            if isinstance(trouble, Refused):
                raise trouble
            if trouble is Trouble.PAGE:
                return web.Response(text="<html><h1>502 Bad Gateway</h1></html>", status=502, content_type="text/html")
            result = self._do(method, call.fields)
            if trouble is Trouble.CUT:
                return await _cut(request)
            return web.json_response({"ok": True, **result})
        except Refused as refused:
            headers = {"retry-after": str(refused.retry_after)} if refused.retry_after is not None else None
            return web.json_response({"ok": False, "error": refused.error}, status=refused.status, headers=headers)
        finally:
            await self._notify()

    def _do(self, method: str, fields: dict[str, Any]) -> dict[str, Any]:
        if method == "auth.test":
            return {
                "url": "https://team.slack.com/",
                "team_id": TEAM,
                "user": "helper",
                "user_id": BOT,
                "bot_id": BOT_ID,
            }
        if method == "apps.connections.open":
            if self.opens:
                raise self.opens.popleft()
            return {"url": f"{self.url.replace('http', 'ws', 1).removesuffix('/api')}/socket?ticket=canary7f3a9cTicket"}
        if method == "users.info":
            return {"user": _found(self.people, fields["user"], "user_not_found")}
        if method == "conversations.info":
            return {"channel": _found(self.channels, fields["channel"], "channel_not_found")}
        if method == "files.info":
            return {"file": _found(self.files, fields["file"], "file_not_found")}
        if method == "files.getUploadURLExternal":
            id = f"F{next(self._numbers):04}UP"
            self.files[id] = {"id": id, "name": fields["filename"], "size": int(fields["length"])}
            return {"upload_url": f"{self.url.removesuffix('/api')}/upload/{id}", "file_id": id}
        if method == "files.completeUploadExternal":
            for file in fields["files"]:
                assert len(self.uploaded[file["id"]].content) == self.files[file["id"]]["size"]
                self.files[file["id"]]["permalink"] = f"https://team.slack.com/files/{BOT}/{file['id']}/{file['title']}"
            return {"files": fields["files"]}
        if method in ("conversations.history", "conversations.replies"):
            return {"messages": self._messages(fields, fields.get("ts"))}
        if method == "chat.postMessage":
            return self._post(fields)
        if method == "chat.update":
            return self._update(fields)
        raise Refused("unknown_method")

    async def upload(self, request: web.Request) -> web.Response:
        _, files = parse_form(request.headers["content-type"], await request.read())
        assert "authorization" not in request.headers
        self.uploaded[request.match_info["id"]] = files["file"]
        return web.Response(text="OK")

    async def download(self, request: web.Request) -> web.Response:
        """A file, or the page that Slack shows to those who may not read it."""
        if request.headers.get("authorization") != f"Bearer {BOT_TOKEN}":
            return web.Response(text="<!DOCTYPE html><html>sign in</html>", content_type="text/html")
        id = request.match_info["id"]
        return web.Response(body=self.contents[id], content_type=self.shown_as.get(id, "application/octet-stream"))

    def keep_file(self, id: str, name: str, type: str, content: bytes) -> dict[str, Any]:
        """A file that somebody sent, as the event names it."""
        url = f"{self.url.removesuffix('/api')}/files/{id}"
        self.contents[id] = content
        self.files[id] = {"id": id, "name": name, "mimetype": type, "size": len(content), "url_private_download": url}
        return {"id": id, "name": name, "mimetype": type, "mode": "hosted"}

    def _messages(self, fields: dict[str, Any], thread: str | None) -> list[dict[str, Any]]:
        _found(self.channels, fields["channel"], "channel_not_found")
        shown = self.shown.get(fields["channel"], [])
        inside = [message for message in shown if message.get("thread_ts") == thread]
        later = [message for message in inside if message["ts"] > fields.get("oldest", "")]
        kept = (
            later
            if fields.get("include_all_metadata") == "true"
            else [{**message, "metadata": {}} for message in later]
        )
        return (kept if thread is not None else kept[::-1])[: int(fields["limit"])]

    def _post(self, fields: dict[str, Any]) -> dict[str, Any]:
        channel, thread = fields["channel"], fields.get("thread_ts")
        if channel in self.people:
            channel = f"D{channel[1:]}"  # a message to a person opens their direct chat
        _found(self.channels, channel, "channel_not_found")
        if any(message["ts"] == thread and "thread_ts" in message for message in self.shown.get(channel, ())):
            raise Refused("cannot_reply_to_message")
        message: dict[str, Any] = {
            "type": "message",
            "user": BOT,
            "bot_id": BOT_ID,
            "ts": f"1767300000.{next(self._numbers):06}",
        }
        message |= {"thread_ts": thread} if thread is not None else {}
        message |= {**_content(fields, TEXT_LIMIT), "metadata": fields.get("metadata")}
        self.shown.setdefault(channel, []).append(message)
        return {"channel": channel, "ts": message["ts"], "message": message}

    def _update(self, fields: dict[str, Any]) -> dict[str, Any]:
        for message in self.shown.get(fields["channel"], ()):
            if message["ts"] == fields["ts"]:
                message.update(_content(fields, EDIT_LIMIT))
                return {"channel": fields["channel"], "ts": message["ts"], "text": message["text"]}
        raise Refused("message_not_found")

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _content(fields: dict[str, Any], limit: int) -> dict[str, Any]:
    text, blocks = fields.get("text", ""), fields.get("blocks", [])
    if not text.strip() and not blocks:
        raise Refused("no_text")
    if len(text) > limit:
        raise Refused("msg_too_long")
    try:
        for block in Block.parse_all(blocks):
            block.validate_json()
    except SlackObjectFormationError:
        raise Refused("invalid_blocks") from None
    return {"text": text, "blocks": blocks}


def _found(known: dict[str, dict[str, Any]], id: str, error: str) -> dict[str, Any]:
    if id not in known:
        raise Refused(error)
    return known[id]


async def _fields(request: web.Request, method: str) -> dict[str, Any]:
    """JSON where something is changed, forms where something is asked: Slack takes no JSON there."""
    body = await request.read()
    if request.content_type == "application/json":
        assert method in CHANGES, f"Slack reads no JSON for {method}"
        fields: dict[str, Any] = orjson.loads(body)
        return fields
    return dict(parse_qsl(body.decode(), keep_blank_values=True))


async def _cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-length": "1000", "content-type": "application/json"})
    await response.prepare(request)
    await response.write(b"{")
    assert request.transport is not None
    request.transport.abort()
    return response


def unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def signed(body: bytes, secret: str = SIGNING_SECRET, *, ahead: int = 0) -> dict[str, str]:
    """The headers of Slack's request with this body, as if it were `ahead` seconds later."""
    at = str(int(time.time()) + ahead)
    return {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": sign(secret.encode(), at, body)}


def a_workspace(fake: FakeSlack) -> None:
    """The channels and people of the payloads."""
    for id, name, kind in (
        ("C01GEN", "general", {}),
        ("C02MANY", "mpdm-ann--bob--helper-1", {"is_mpim": True}),
        ("G01MANY", "mpdm-ann--bo--helper-1", {"is_mpim": True}),
        ("C03PRIV", "plans", {"is_private": True}),
    ):
        fake.channels[id] = {"id": id, "name": name, "topic": {"value": f"about {name}"}, **kind}
    for user in ("1ANN", "2BOB"):
        fake.channels[f"D0{user}"] = {"id": f"D0{user}", "is_im": True, "user": f"U0{user}"}
        name = user[1:].title()
        fake.people[f"U0{user}"] = {"id": f"U0{user}", "name": name.lower(), "profile": {"display_name": name}}


@asynccontextmanager
async def open_slack(port: int = 0) -> AsyncIterator[FakeSlack]:
    """A workspace that answers at `slack.url` until the block ends."""
    fake = FakeSlack()
    a_workspace(fake)
    listening = bind("127.0.0.1", port)
    fake.url = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
    fake.keep_file("F01PIC", "chart.png", "image/png", a_png())
    fake.files["F01PIC"]["permalink"] = "https://team.slack.com/files/U01ANN/F01PIC/chart.png"
    app = web.Application()
    app.add_routes([web.post("/api/{method}", fake.answer), web.get("/socket", fake.connect)])
    app.add_routes([web.post("/upload/{id}", fake.upload), web.get("/files/{id}", fake.download)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    try:
        yield fake
    finally:
        for link in list(fake.links):
            await link.socket.close()
        await runner.cleanup()
        listening.close()
