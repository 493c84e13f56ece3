"""A local Bot API: a real HTTP server that keeps updates until they are confirmed, shows chats what is sent, and can be trouble.

It is as strict as Telegram where our code depends on it: one poller at a time, 4096 units after entity parsing, valid HTML,
chats that exist, topics that exist. Every request is remembered as it came.
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
from urllib.parse import parse_qsl

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from producers.server.bind import bind
from tests.support.telegram_html import parse_html, units
from tests.support.uploads import FilesSent, Uploaded, parse_form

TOKEN = "99:AAcanary-7f3a9c_secret"
BOT = {"id": 99, "is_bot": True, "first_name": "Helper", "username": "helper_bot"}
TEXT_LIMIT, BATCH = 4096, 100
FILE_LIMIT = 20_000_000


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it arrived."""

    at: float
    method: str
    fields: dict[str, Any]


class Refused(Exception):
    """An answer that is no success, as Telegram words it."""

    def __init__(self, code: int, text: str, **parameters: Any) -> None:
        super().__init__(text)
        self.code, self.text, self.parameters = code, text, parameters


class Trouble(Enum):
    CUT = "taken, and the connection cut in the middle of the answer"
    PAGE = "a proxy's page instead of an answer, nothing taken"


@dataclass
class FakeTelegram:
    url: str = ""
    token: str = TOKEN
    calls: list[Call] = field(default_factory=list)
    shown: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # chat -> messages
    blocked: set[int] = field(default_factory=set)
    moved: dict[int, int] = field(default_factory=dict)
    topics: set[tuple[int, int]] = field(default_factory=set)
    trouble: deque[Refused | Trouble | None] = field(default_factory=deque)  # for the sends to come, one each
    refused_edits: deque[Refused] = field(default_factory=deque)  # for the changes to come, one each
    polls: deque[Refused] = field(default_factory=deque)  # the same for getUpdates
    spoiled: dict[bytes, bytes] = field(default_factory=dict)  # what getUpdates says instead of something
    files: FilesSent = field(default_factory=FilesSent)  # by file id
    downloads: deque[Response] = field(default_factory=deque)  # instead of a file, one each
    uploaded: list[Uploaded] = field(default_factory=list)  # what we sent
    storms: bool = False  # 429 to every send
    webhook: str = ""
    webhook_fields: dict[str, Any] = field(default_factory=dict)  # of the last setWebhook
    webhook_error: dict[str, Any] = field(default_factory=dict)  # what getWebhookInfo says of the last failure
    polling: int = 0
    _updates: list[dict[str, Any]] = field(default_factory=list)
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)
    _ended: int = 0
    _ending: bool = False

    # -- what a test sees and does

    def of(self, method: str) -> list[dict[str, Any]]:
        return [call.fields for call in self.calls if call.method == method]

    def texts(self, chat: int) -> list[str]:
        return [message["text"] for message in self.shown.get(chat, ()) if "text" in message]

    def pending(self) -> list[int]:
        """Updates that nobody has confirmed."""
        return [update["update_id"] for update in self._updates]

    async def bring(self, *updates: dict[str, Any]) -> None:
        """Something happened in Telegram."""
        self._updates += updates
        await self._notify()

    async def until(self, true: Callable[[FakeTelegram], object], seconds: float = 90) -> None:
        try:
            async with asyncio.timeout(seconds), self._came:
                await self._came.wait_for(lambda: true(self))
        except TimeoutError:
            raise AssertionError(f"it did not come; there came {self.calls}") from None

    def forget(self) -> None:
        """What was asked and shown so far."""
        self.calls.clear()
        self.shown.clear()

    async def end_poll(self) -> None:
        """As if the poll that waits had waited for long enough."""
        self._ended = self.polling
        await self._notify()

    # -- what Telegram does

    async def _notify(self) -> None:
        async with self._came:
            self._came.notify_all()

    async def answer(self, request: Request) -> Response:
        token, method = request.path_params["token"], request.path_params["method"]
        if token != self.token:
            return _refusal(Refused(401, "Unauthorized"))
        fields, file = await _fields(request)
        call = Call(time.monotonic(), method, fields)
        if file is not None:
            self.uploaded.append(file)
        self.calls.append(call)
        try:
            if method == "getUpdates":
                return self._spoilt(JSONResponse({"ok": True, "result": await self._get_updates(call.fields)}))
            return await self._do(call)
        except Refused as refused:
            return _refusal(refused)
        finally:
            await self._notify()

    def _spoilt(self, response: Response) -> Response:
        body = bytes(response.body)
        for before, instead in self.spoiled.items():
            body = body.replace(before, instead)
        return Response(body, media_type="application/json")

    async def _do(self, call: Call) -> Response:
        if call.method == "getMe":
            joins = {"can_join_groups": True, "can_read_all_group_messages": False, "supports_inline_queries": False}
            return JSONResponse({"ok": True, "result": {**BOT, "id": int(self.token.partition(":")[0]), **joins}})
        if call.method in ("getWebhookInfo", "setWebhook", "deleteWebhook"):
            return JSONResponse({"ok": True, "result": self._webhook(call)})
        if call.method == "answerCallbackQuery":
            return JSONResponse({"ok": True, "result": True})
        if call.method == "getFile":
            return self._get_file(call.fields["file_id"])
        sends = ("sendMessage", "editMessageText", "sendPhoto", "sendDocument")
        if self.storms and call.method in sends:
            raise Refused(429, "Too Many Requests: retry after 1", retry_after=1)
        trouble = self.trouble.popleft() if self.trouble and call.method in sends else None
        if isinstance(trouble, Refused):
            raise trouble
        if trouble is Trouble.PAGE:
            return Response("<html><h1>502 Bad Gateway</h1></html>", 502, media_type="text/html")
        result = self._send(call)
        if trouble is Trouble.CUT:
            return Response(b"{", headers={"content-length": "1000"})
        return JSONResponse({"ok": True, "result": result})

    def _webhook(self, call: Call) -> Any:
        if call.method == "getWebhookInfo":
            return {"url": self.webhook, "pending_update_count": len(self._updates), **self.webhook_error}
        if call.method == "setWebhook" and not call.fields["url"].startswith("https://"):
            raise Refused(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
        if call.method == "setWebhook" and ":9999" in call.fields["url"]:
            raise Refused(400, "Bad Request: bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443")
        self.webhook = call.fields.get("url", "")
        self.webhook_fields = call.fields
        return True

    def _get_file(self, id: str) -> Response:
        if id not in self.files:
            raise Refused(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        if len(self.files[id]) > FILE_LIMIT:
            raise Refused(400, "Bad Request: file is too big")
        about = {
            "file_id": id,
            "file_unique_id": "u",
            "file_size": len(self.files[id]),
            "file_path": f"photos/{id}.jpg",
        }
        return JSONResponse({"ok": True, "result": about})

    async def download(self, request: Request) -> Response:
        if request.path_params["token"] != self.token:
            return _refusal(Refused(401, "Unauthorized"))
        self.calls.append(Call(time.monotonic(), "download", {"path": request.path_params["path"]}))
        if self.downloads:
            return self.downloads.popleft()
        id = request.path_params["path"].removeprefix("photos/").removesuffix(".jpg")
        return Response(self.files[id], media_type="application/octet-stream")

    async def _get_updates(self, fields: dict[str, Any]) -> list[dict[str, Any]]:
        if self.polls:
            raise self.polls.popleft()
        if self.webhook:
            raise Refused(409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook")
        self.polling += 1
        mine = self.polling
        await self._notify()  # a poll that waits is ended by this one
        offset = int(fields.get("offset") or 0)
        self._updates = [update for update in self._updates if update["update_id"] >= offset]
        async with self._came:
            try:
                async with asyncio.timeout(float(fields.get("timeout") or 0)):
                    await self._came.wait_for(
                        lambda: self._updates or mine in (self._ended, self.polling - 1) or self._ending
                    )
            except TimeoutError:
                pass
        if mine != self.polling:
            raise Refused(409, "Conflict: terminated by other getUpdates request; make sure that only one is running")
        return self._updates[: int(fields.get("limit") or BATCH)]

    def _send(self, call: Call) -> Any:
        fields = call.fields
        chat, thread = int(fields["chat_id"]), fields.get("message_thread_id")
        if chat in self.moved:
            text = "Bad Request: group chat was upgraded to a supergroup chat"
            raise Refused(400, text, migrate_to_chat_id=self.moved[chat])
        if chat in self.blocked:
            raise Refused(403, "Forbidden: bot was blocked by the user")
        if thread is not None and (chat, int(thread)) not in self.topics:
            raise Refused(400, "Bad Request: message thread not found")
        if call.method == "sendChatAction":
            return True
        if call.method == "sendMessageDraft":
            if chat < 0 or not fields["draft_id"]:
                raise Refused(400, "Bad Request: no draft can be shown here")
            _shown(call)
            return True
        if call.method == "editMessageText":
            return self._edit(chat, call)
        message = {"message_id": 1000 + len(self.calls), "date": 1767225600, "from": BOT, "chat": _chat(chat)}
        if thread is not None:
            message |= {"message_thread_id": int(thread), "is_topic_message": True}
        message |= _shown(call)
        self.shown.setdefault(chat, []).append(message)
        return message

    def _edit(self, chat: int, call: Call) -> Any:
        if self.refused_edits:
            raise self.refused_edits.popleft()
        for message in self.shown.get(chat, ()):
            if message["message_id"] == int(call.fields["message_id"]):
                if not _changed(message, call):
                    raise Refused(
                        400, "Bad Request: message is not modified: specified new message content is the same"
                    )
                return message
        raise Refused(400, "Bad Request: message to edit not found")


def _changed(shown: dict[str, Any], call: Call) -> bool:
    gone = ("entities", "reply_markup")  # unless the change brings them again
    after = {**{name: value for name, value in shown.items() if name not in gone}, **_shown(call)}
    changed = after != shown
    shown.clear()
    shown.update(after)
    return changed


def _shown(call: Call) -> dict[str, Any]:
    """What the chat shows of a send."""
    if call.method == "sendPhoto":
        size = {"file_id": call.fields["photo"], "file_unique_id": "u", "width": 1, "height": 1}
        return {"photo": [size]}
    if call.method == "sendDocument":
        return {"document": {"file_id": call.fields["document"], "file_unique_id": "u"}}
    if call.method in ("sendAudio", "sendVideo", "sendAnimation"):
        kind = call.method.removeprefix("send").lower()
        return {kind: {"file_id": call.fields[kind], "file_unique_id": "u"}}
    if call.method not in ("sendMessage", "editMessageText", "sendMessageDraft"):
        raise Refused(404, "Not Found: method not found")
    text, entities = call.fields["text"], list[dict[str, Any]]()
    if call.fields.get("parse_mode") == "HTML":
        try:
            text, entities = parse_html(text)
        except ValueError as error:
            raise Refused(400, f"Bad Request: can't parse entities: {error}") from None
    if not text.strip():
        raise Refused(400, "Bad Request: message text is empty")
    if units(text) > TEXT_LIMIT:
        raise Refused(400, "Bad Request: message is too long")
    return {"text": text} | ({"entities": entities[:100]} if entities else {}) | _keyboard(call)


def _keyboard(call: Call) -> dict[str, Any]:
    """The buttons of a message, as strictly as Telegram takes them."""
    if "reply_markup" not in call.fields:
        return {}
    buttons = [button for row in call.fields["reply_markup"]["inline_keyboard"] for button in row]
    if not all(button["text"] and 1 <= len(button["callback_data"].encode()) <= 64 for button in buttons):
        raise Refused(400, "Bad Request: BUTTON_DATA_INVALID")
    return {"reply_markup": call.fields["reply_markup"]} if buttons else {}


def _chat(id: int) -> dict[str, Any]:
    return (
        {"id": id, "type": "private", "first_name": "Ann"}
        if id > 0
        else {"id": id, "type": "supergroup", "title": "Ops"}
    )


def _refusal(refused: Refused) -> Response:
    body: dict[str, Any] = {"ok": False, "error_code": refused.code, "description": refused.text}
    return JSONResponse(body | ({"parameters": refused.parameters} if refused.parameters else {}), refused.code)


async def _fields(request: Request) -> tuple[dict[str, Any], Uploaded | None]:
    """JSON as we send it, or a form as python-telegram-bot does, with JSON in its values; and the file of a form that has one."""
    body, kind = await request.body(), request.headers.get("content-type", "")
    if kind.startswith("application/json"):
        fields: dict[str, Any] = orjson.loads(body)
        return fields, None
    if kind.startswith("multipart/form-data"):
        texts, files = parse_form(kind, body)
        [(name, file)] = files.items()
        return {**{name: _value(text) for name, text in texts.items()}, name: f"attach:{file.name}"}, file
    return {name: _value(value) for name, value in parse_qsl(body.decode(), keep_blank_values=True)}, None


def _value(text: str) -> Any:
    if text[:1] in ("{", "[") or text in ("true", "false") or text.lstrip("-").isdigit():
        return orjson.loads(text)
    return text


@asynccontextmanager
async def open_telegram(port: int = 0) -> AsyncIterator[FakeTelegram]:
    """A Bot API that answers at `telegram.url` until the block ends."""
    fake = FakeTelegram()
    listening = bind("127.0.0.1", port)
    fake.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    routes = [Route("/bot{token}/{method}", fake.answer, methods=["GET", "POST"])]
    app = Starlette(routes=[*routes, Route("/file/bot{token}/{path:path}", fake.download)])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield fake
    finally:
        fake._ending = True
        await fake._notify()
        server.should_exit = server.force_exit = True
        await serving
        listening.close()
