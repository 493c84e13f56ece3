"""WhatsApp's contract: signed webhooks of Meta's, and the Cloud API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from pydantic import SecretStr

from producers.heard import Heard
from producers.whatsapp.normalise import normalise
from producers.whatsapp.notifications import events_in
from producers.whatsapp.receive import HEADER
from shared.messages import Media, Source
from shared.platforms.whatsapp import NAME, WhatsAppSettings
from tests.contract.case import SEND_SECONDS, Answer, Handshake, NotHere, Outgoing, Post, Shown, Webhook
from tests.support.whatsapp import (
    NUMBER,
    OTHER_NUMBER,
    OWN_PHONE,
    TOKEN,
    FakeWhatsApp,
    Refused,
    a_message,
    notification,
    open_whatsapp,
    signature,
)

SECRETS = ("canary-app-secret-1", "canary-app-secret-2")
VERIFY = "canary-verify-token"
ANN, GROUP = "15552223333", "Y2FwaV9ncm91cDox"
PATH = f"/webhooks/{NAME}"


def block(secrets: tuple[str, ...], **changes: Any) -> dict[str, Any]:
    """Without an app secret there is nothing: the settings refuse the rest of the block alone."""
    if not secrets:
        return {NAME: WhatsAppSettings()}
    values = {
        "access_token": SecretStr(TOKEN),
        "app_secret": tuple(SecretStr(secret) for secret in secrets),
        "verify_token": SecretStr(VERIFY),
        "phone_number_id": NUMBER,
        "allowed_users": (ANN, str(int(ANN) + 1)),
    }
    return {NAME: WhatsAppSettings(**{**values, **changes})}


def heard(payload: dict[str, Any]) -> Heard:
    [event] = events_in(payload)
    return normalise(event.fields, {NUMBER: "", OTHER_NUMBER: OTHER_NUMBER}, received_at=1_000)


def _handshake(token: str) -> Post:
    return Post(f"{PATH}?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token={token}", b"", (), "GET")


class WhatsAppWebhook(Webhook):
    platform = NAME
    secrets = SECRETS
    proofs = (HEADER,)
    oldest_seconds = NotHere("Meta signs no time")
    handshakes = (Handshake(_handshake(VERIFY), b"1158201444", _handshake("wrong")),)
    own = notification(a_message("hello", OWN_PHONE))
    shapeless = (
        {"object": "whatsapp_business_account", "entry": 5},
        {"object": "whatsapp_business_account", "entry": [{"changes": [{"field": "messages", "value": 5}]}]},
        notification(a_message("hello", id="ODD", text=5)),
    )

    def __init__(self) -> None:
        self.others = {
            "a reaction": notification(
                a_message("", type="reaction", reaction={"message_id": "wamid.X=", "emoji": "x"})
            ),
            "an edit": notification(a_message("", type="edit", edit={"original_message_id": "wamid.X="})),
            "a status": notification({"id": "wamid.X=", "status": "read", "timestamp": "1767225600"}),
            "another kind of change": {
                "object": "whatsapp_business_account",
                "entry": [{"id": "1", "changes": [{"field": "account_update", "value": {"event": "x"}}]}],
            },
        }

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[WhatsAppWebhook]:
        yield cls()

    def blocks(self, *secrets: str) -> dict[str, Any]:
        return block(secrets)

    def said(self, text: str, *, id: int, chat: int = 1) -> Any:
        return notification(a_message(text, str(int(ANN) - 1 + chat), id=f"M{id}"))

    def said_by_stranger(self, text: str, *, id: int) -> Any:
        return notification(a_message(text, "15556667777", id=f"M{id}"))

    def pressed(self, data: str, *, id: int, by_stranger: bool = False) -> Any:
        reply = {"type": "button_reply", "button_reply": {"id": data, "title": "Approve"}}
        person, more = "15556667777" if by_stranger else ANN, {"type": "interactive", "interactive": reply}
        return notification(a_message("", person, id=f"M{id}", **more))

    def post(self, body: bytes, secret: str, *, ahead: int = 0) -> Post:
        return Post(PATH, body, ((HEADER, signature(body, secret)),))


class CloudApiCase(Outgoing):
    platform = NAME
    secrets = (TOKEN, *SECRETS, VERIFY)
    source = Source(NAME, ANN, user=ANN)
    threaded = NotHere("WhatsApp has no threads")
    pointing = (Source(NAME, f"group:{GROUP}", "group", user=ANN), "wamid.ASKED=")
    media = Media("https://files.example/a.png", "image/png", "a.png")
    markup_refused = NotHere("WhatsApp shows what it does not understand")

    def __init__(self, fake: FakeWhatsApp) -> None:
        self.fake = fake
        self.api_url = fake.url
        self.refused = Answer(400, Refused(400, 131047).body)
        self.denied = Answer(401, Refused(401, 190).body)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[CloudApiCase]:
        async with open_whatsapp() as fake:
            yield cls(fake)

    def blocks(self, api_url: str, seconds: float = SEND_SECONDS) -> dict[str, Any]:
        return block(SECRETS, api_url=api_url, send_timeout_seconds=seconds)

    def is_send(self, method: str, path: str) -> bool:
        return path.endswith("/messages")

    def busy(self, seconds: int) -> Answer:
        return Answer(429, Refused(429, 130429).body, (("retry-after", str(seconds)),))

    def shown(self) -> list[Shown]:
        sent = sorted((one for found in self.fake.shown.values() for one in found), key=_order)
        return [
            Shown(
                one["text"]["body"] if "text" in one else one.get("interactive", {}).get("body", {}).get("text", ""),
                one["id"],
                answers=one.get("context", {}).get("message_id"),
                media=one["image"]["link"] if "image" in one else None,
                buttons=_buttons(one),
            )
            for one in sent
        ]


def _buttons(message: dict[str, Any]) -> list[tuple[str, str]]:
    found = message.get("interactive", {}).get("action", {}).get("buttons", ())
    return [(button["reply"]["title"], button["reply"]["id"]) for button in found]


def _order(message: dict[str, Any]) -> int:
    return int(orjson.dumps(message["id"]).strip(b'"=').removeprefix(b"wamid.OUT"))


RECEIVING = (WhatsAppWebhook,)
SENDING = CloudApiCase
