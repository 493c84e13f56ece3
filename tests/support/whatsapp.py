"""A local Cloud API: a real HTTP server that shows people what is sent to them, and can be trouble; and Meta's side of the
webhook.

It is as strict as WhatsApp where our code depends on it: the token, 4096 units of text, addresses of files, a person or a
group but not both. Every request is remembered as it came.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from producers.server.bind import bind
from tests.support.telegram_html import units
from tests.support.uploads import FilesSent, Uploaded, parse_form

TOKEN = "EAAcanary-7f3a9c"
NUMBER, OWN_PHONE, OTHER_NUMBER = "106540352242922", "15550001111", "200"
TEXT_LIMIT = 4096
_ids = count(1)


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it arrived."""

    at: float
    number: str
    fields: dict[str, Any]


class Refused(Exception):
    """An answer that is no success, as Meta words it. Without a code it is a bare status."""

    def __init__(self, status: int, code: int | None = None) -> None:
        super().__init__(str(code))
        self.status, self.code = status, code

    @property
    def body(self) -> bytes:
        details = {"messaging_product": "whatsapp", "details": "as it is"}
        error = {"message": f"(#{self.code}) no", "type": "OAuthException", "code": self.code, "error_data": details}
        return orjson.dumps({"error": error}) if self.code is not None else b"<html>no</html>"


class Trouble(Enum):
    CUT = "taken, and the connection cut in the middle of the answer"


@dataclass
class FakeWhatsApp:
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    shown: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # person or group -> messages
    closed: set[str] = field(default_factory=set)  # people who last wrote more than 24 hours ago
    trouble: deque[Refused | Trouble | None] = field(default_factory=deque)  # for the sends to come, one each
    files: FilesSent = field(default_factory=FilesSent)  # by media id
    uploaded: dict[str, Uploaded] = field(default_factory=dict)  # what we gave, by media id
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def sends(self) -> list[dict[str, Any]]:
        return [call.fields for call in self.calls if "status" not in call.fields]

    @property
    def reads(self) -> list[dict[str, Any]]:
        return [call.fields for call in self.calls if "status" in call.fields]

    def texts(self, to: str) -> list[str]:
        return [message["text"]["body"] for message in self.shown.get(to, ()) if "text" in message]

    async def until(self, true: Callable[[FakeWhatsApp], object], seconds: float = 90) -> None:
        try:
            async with asyncio.timeout(seconds), self._came:
                await self._came.wait_for(lambda: true(self))
        except TimeoutError:
            raise AssertionError(f"it did not come; there came {self.calls}") from None

    def forget(self) -> None:
        self.calls.clear()
        self.shown.clear()

    async def answer(self, request: Request) -> Response:
        call = Call(time.monotonic(), request.path_params["number"], orjson.loads(await request.body()))
        try:
            if request.headers.get("authorization") != f"Bearer {TOKEN}":
                raise Refused(401, 190)
            self.calls.append(call)
            return self._do(call)
        except Refused as refused:
            return Response(refused.body, refused.status, media_type="application/json")
        finally:
            async with self._came:
                self._came.notify_all()

    async def about(self, request: Request) -> Response:
        id = request.path_params["id"]
        if request.headers.get("authorization") == f"Bearer {TOKEN}" and id in (NUMBER, OTHER_NUMBER):
            return JSONResponse({"id": id, "display_phone_number": OWN_PHONE, "verified_name": "Helper"})
        if request.headers.get("authorization") != f"Bearer {TOKEN}" or id not in self.files:
            return Response(Refused(400, 100).body, 400, media_type="application/json")
        about = {
            "id": id,
            "url": f"{self.url}/download/{id}",
            "file_size": len(self.files[id]),
            "mime_type": "image/png",
        }
        return JSONResponse({"messaging_product": "whatsapp", **about})

    async def download(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Response("no", 401)
        return Response(self.files[request.path_params["id"]], media_type="image/png")

    async def upload(self, request: Request) -> Response:
        fields, files = parse_form(request.headers["content-type"], await request.body())
        if request.headers.get("authorization") != f"Bearer {TOKEN}" or fields["messaging_product"] != "whatsapp":
            return Response(Refused(401, 190).body, 401, media_type="application/json")
        assert fields["type"] == files["file"].type
        id = f"up{next(_ids)}"
        self.uploaded[id] = files["file"]
        return JSONResponse({"id": id})

    def _do(self, call: Call) -> Response:
        fields = call.fields
        if fields.get("messaging_product") != "whatsapp" or call.number not in (NUMBER, OTHER_NUMBER):
            raise Refused(400, 100)
        if fields.get("status") == "read":
            return JSONResponse({"success": fields["message_id"].startswith("wamid.")})
        trouble = self.trouble.popleft() if self.trouble else None
        if isinstance(trouble, Refused):
            raise trouble
        to = _recipient(fields)
        if to in self.closed:
            raise Refused(400, 131047)
        _check(fields)
        id = f"wamid.OUT{next(_ids)}="
        self.shown.setdefault(to, []).append({**fields, "id": id})
        if trouble is Trouble.CUT:
            return Response(b"{", headers={"content-length": "1000"})
        return JSONResponse({"messaging_product": "whatsapp", "contacts": [{"input": to}], "messages": [{"id": id}]})


def _recipient(fields: dict[str, Any]) -> str:
    addresses = [fields[name] for name in ("to", "recipient") if name in fields]
    if len(addresses) != 1 or fields.get("recipient_type") not in ("individual", "group"):
        raise Refused(400, 131009)
    if "to" in fields and fields["recipient_type"] == "individual" and not addresses[0].isdigit():
        raise Refused(400, 131009)
    return str(addresses[0])


def _check(fields: dict[str, Any]) -> None:
    content = fields[fields["type"]]
    if fields["type"] == "text":
        if not content["body"].strip() or units(content["body"]) > TEXT_LIMIT:
            raise Refused(400, 100)
    elif fields["type"] == "interactive":
        buttons = [button["reply"] for button in content["action"]["buttons"]]
        titles, ids = ({button[name] for button in buttons} for name in ("title", "id"))
        fits = all(0 < units(title) <= 20 for title in titles) and all(0 < len(id) <= 256 for id in ids)
        if not 0 < len(buttons) <= 3 or len(titles) < len(buttons) or len(ids) < len(buttons) or not fits:
            raise Refused(400, 131009)
        if fields["recipient_type"] == "group" or not 0 < units(content["body"]["text"]) <= 1024:
            raise Refused(400, 131009)
    elif ("id" in content) == ("link" in content) or not content.get("link", "https://").startswith("http"):
        raise Refused(400, 131009)
    if "context" in fields and not fields["context"]["message_id"].startswith("wamid."):
        raise Refused(400, 100)


@asynccontextmanager
async def open_whatsapp(port: int = 0) -> AsyncIterator[FakeWhatsApp]:
    """A Cloud API that answers at `fake.url` until the block ends."""
    fake = FakeWhatsApp()
    listening = bind("127.0.0.1", port)
    fake.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    routes = [
        Route("/{number}/messages", fake.answer, methods=["POST"]),
        Route("/{number}/media", fake.upload, methods=["POST"]),
        Route("/download/{id}", fake.download),
        Route("/{id}", fake.about),
    ]
    app = Starlette(routes=routes)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield fake
    finally:
        server.should_exit = server.force_exit = True
        await serving
        listening.close()


def signature(body: bytes, secret: str) -> str:
    return "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()


def notification(*items: dict[str, Any], number: str = NUMBER, name: str = "Ann") -> dict[str, Any]:
    """A request with these messages or statuses of one number."""
    messages = [item for item in items if "type" in item]
    statuses = [item for item in items if "type" not in item]
    people = sorted({str(message["from"]) for message in messages if "from" in message})
    value: dict[str, Any] = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": OWN_PHONE, "phone_number_id": number},
        "contacts": [{"profile": {"name": name}, "wa_id": person} for person in people],
    }
    value |= {kind: found for kind, found in (("messages", messages), ("statuses", statuses)) if found}
    change = {"value": value, "field": "messages"}
    return {"object": "whatsapp_business_account", "entry": [{"id": "102290129340398", "changes": [change]}]}


def a_message(text: str, /, person: str = "15552223333", id: str = "", **more: Any) -> dict[str, Any]:
    said = {"from": person, "id": f"wamid.{id or f'IN{next(_ids)}'}=", "timestamp": "1767225600", "type": "text"}
    return {**said, "text": {"body": text}, **more}
