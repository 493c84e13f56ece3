"""Plainchat's contract: signed requests in, rooms that take messages out."""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from pydantic import SecretStr

from producers.heard import Heard
from producers.plainchat.normalise import normalise
from producers.plainchat.receive import OLDEST_SECONDS
from shared.messages import Media, Source
from shared.platforms.plainchat import NAME, PlainchatSettings
from tests.contract.case import SEND_SECONDS, Answer, NotHere, Outgoing, Post, Shown, Webhook
from tests.contract.fake_api import FakeApi, Request, open_api

TOKEN, SECRETS = "canary-token-1", ("canary-secret-1", "canary-secret-2")


def block(*secrets: str, **values: Any) -> dict[str, Any]:
    if not secrets:
        return {NAME: PlainchatSettings()}
    listed = tuple(SecretStr(secret) for secret in secrets)
    return {NAME: PlainchatSettings(secrets=listed, token=SecretStr(TOKEN), allowed_users=("ann",), **values)}


def event(id: int, text: str, room: str = "room-1", user: str = "ann", **changes: Any) -> dict[str, Any]:
    who = {"id": user, "name": user.title(), "bot": False}
    said = {"event": "message", "id": f"m{id}", "room": room, "private": True, "user": who, "text": text}
    return {**said, "mentioned": False, **changes}


class PlainchatWebhook(Webhook):
    platform = NAME
    secrets = SECRETS
    proofs = ("x-plainchat-time", "x-plainchat-signature")
    oldest_seconds = OLDEST_SECONDS
    shapeless = ({"event": "message"}, event(901, "x", room=""), event(902, "x", user="a\nb"))

    def __init__(self) -> None:
        self.own = event(903, "mine", user="helper") | {"user": {"id": "helper", "name": "Helper", "bot": True}}
        self.others = {"somebody came": {"event": "joined", "id": "m904", "room": "room-1", "user": {"id": "ann"}}}

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[PlainchatWebhook]:
        yield cls()

    def blocks(self, *secrets: str) -> dict[str, Any]:
        return block(*secrets)

    def said(self, text: str, *, id: int, chat: int = 1) -> Any:
        return event(id, text, f"room-{chat}")

    def said_by_stranger(self, text: str, *, id: int) -> Any:
        return event(id, text, user="mallory")

    def post(self, body: bytes, secret: str, *, ahead: int = 0) -> Post:
        at = str(int(time.time()) + ahead)
        signature = hmac.digest(secret.encode(), at.encode() + b"." + body, "sha256").hex()
        return Post(f"/webhooks/{NAME}", body, (("x-plainchat-time", at), ("x-plainchat-signature", signature)))


class PlainchatRooms(Outgoing):
    platform = NAME
    secrets = (TOKEN,)
    source = Source(NAME, "room-1", user="ann")
    threaded = NotHere("a room has no threads")
    pointing = (Source(NAME, "room-2", "group", user="ann"), "m7")
    media = Media("https://files.example/a.png", "image/png")
    refused = Answer(404, b'{"error": "no such room"}')
    denied = Answer(401, b'{"error": "who are you?"}')
    markup_refused = NotHere("Plainchat shows Markdown")

    def __init__(self, api: FakeApi) -> None:
        self.api_url = api.url
        self._shown: dict[str, Shown] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[PlainchatRooms]:
        async with open_api() as api:
            case = cls(api)
            api.answer = case._take
            yield case

    def blocks(self, api_url: str, seconds: float = SEND_SECONDS) -> dict[str, Any]:
        return block(SECRETS[0], api_url=api_url, send_timeout_seconds=seconds)

    def is_send(self, method: str, path: str) -> bool:
        return method == "POST"

    def busy(self, seconds: int) -> Answer:
        return Answer(429, headers=(("retry-after", str(seconds)),))

    def shown(self) -> list[Shown]:
        return list(self._shown.values())

    def _take(self, request: Request) -> Answer:
        """The server: one message per key."""
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer(401)
        fields = orjson.loads(request.body)
        media = fields["files"][0] if fields["files"] else None
        shown = Shown(fields["text"], f"m{100 + len(self._shown)}", None, fields["answers"], media)
        return Answer(200, orjson.dumps({"id": self._shown.setdefault(fields["key"], shown).id}))


def heard(payload: dict[str, Any]) -> Heard:
    return normalise(payload, received_at=1_000)


RECEIVING = (PlainchatWebhook,)
SENDING = PlainchatRooms
