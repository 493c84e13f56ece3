"""Feishu's contract: told by an encrypted webhook, listened to by a long connection, answered through the open platform."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from pydantic import SecretStr

from producers.feishu.normalise import FeishuBot, normalise
from producers.feishu.secrecy import opened
from producers.heard import Heard
from shared.messages import Media, Source
from shared.platforms.feishu import NAME, FeishuSettings
from tests.contract.case import (
    SEND_SECONDS,
    Answer,
    Handshake,
    Held,
    Incoming,
    NotHere,
    Outgoing,
    Post,
    Shown,
    Webhook,
)
from tests.support.feishu import APP_ID, APP_SECRET, BOT, FakeFeishu, encrypted, open_feishu, signed

KEYS = ("canary7f3a9c encrypt key 1", "canary7f3a9c encrypt key 2")
PEOPLE, CHATS = ("ou_ann", "ou_bob"), ("oc_ann", "oc_bob")


def block(fake: FakeFeishu, *keys: str, **changes: Any) -> dict[str, Any]:
    values = {"app_id": APP_ID, "app_secret": SecretStr(APP_SECRET), "api_url": fake.url, "allowed_users": PEOPLE}
    return {NAME: FeishuSettings(encrypt_key=tuple(SecretStr(key) for key in keys), **{**values, **changes})}


def event(id: int, kind: str = "im.message.receive_v1", sender: str = "user", **message: Any) -> dict[str, Any]:
    """Ann writes to the bot, in their direct chat."""
    person = message.pop("person", PEOPLE[0])
    said = {
        "message_id": f"om_{id}",
        "create_time": "1767225600000",
        "chat_id": CHATS[0],
        "chat_type": "p2p",
        "message_type": "text",
        "content": '{"text":"hello"}',
        "mentions": [{"key": "@_user_1", "id": {"open_id": "ou_bob"}, "name": "Bob", "tenant_key": "tk1"}],
        **message,
    }
    about = {"sender_id": {"open_id": person, "union_id": "on_1"}, "sender_type": sender, "tenant_key": "tk1"}
    header = {"event_id": f"ev-{id}", "event_type": kind, "create_time": "1767225600000", "token": "vt"}
    header |= {"app_id": APP_ID, "tenant_key": "tk1"}
    return {"schema": "2.0", "header": header, "event": {"sender": about, "message": said}}


def press(id: int, person: str, chat: str, value: Any) -> dict[str, Any]:
    """Somebody presses a button of a card of the bot's."""
    header = {**event(id)["header"], "event_type": "card.action.trigger"}
    pressed = {
        "operator": {"open_id": person, "union_id": "on_1", "user_id": "u1", "tenant_key": "tk1"},
        "token": "c-canary7f3a9c",
        "action": {"value": value, "tag": "button"},
        "host": "im_message",
        "context": {"open_message_id": "om_sent1", "open_chat_id": chat},
    }
    return {"schema": "2.0", "header": header, "event": pressed}


class Told(Incoming):
    """What Feishu tells, however it comes."""

    platform = NAME
    own = event(901, sender="app", person=BOT)
    shapeless = (
        {"schema": "2.0"},
        {"schema": "2.0", "header": {"event_type": "im.message.receive_v1"}, "event": []},
        event(913, content="{"),
        {"challenge": 5},
    )

    def __init__(self, fake: FakeFeishu) -> None:
        self.fake = fake
        self.others = {
            "a recall": event(902, "im.message.recalled_v1"),
            "a reaction": event(903, "im.message.reaction.created_v1"),
            "a message was read": event(904, "im.message.message_read_v1"),
            "the bot came into a group": event(905, "im.chat.member.bot.added_v1"),
            "another bot": event(906, sender="app", person="ou_other"),
            "a notice of the group": event(907, message_type="system"),
        }

    def said(self, text: str, *, id: int, chat: int = 1) -> Any:
        content = orjson.dumps({"text": text}).decode()
        return event(id, content=content, person=PEOPLE[chat - 1], chat_id=CHATS[chat - 1])

    def said_by_stranger(self, text: str, *, id: int) -> Any:
        return event(id, content=orjson.dumps({"text": text}).decode(), person="ou_spy")

    def pressed(self, data: str, *, id: int, by_stranger: bool = False) -> Any:
        value = {"command": data, "chat": CHATS[0], "chat_type": "dm"}
        return press(id, "ou_spy" if by_stranger else PEOPLE[0], CHATS[0], value)


class FeishuWebhook(Told, Webhook):
    secrets = KEYS
    proofs = ("x-lark-signature", "x-lark-request-timestamp", "x-lark-request-nonce")
    oldest_seconds = NotHere("Feishu repeats an event for seven hours, perhaps under its first signature")

    def __init__(self, fake: FakeFeishu) -> None:
        super().__init__(fake)
        asked = orjson.dumps({"type": "url_verification", "challenge": "ajls", "token": "vt"})
        unsigned = [Post(f"/webhooks/{NAME}", encrypted(asked, key), ()) for key in KEYS]
        answer = b'{"challenge":"ajls"}'
        self.handshakes = (
            Handshake(self.post(asked, KEYS[0]), answer, self.post(asked, KEYS[1])),
            Handshake(unsigned[0], answer, unsigned[1]),
            Handshake(unsigned[0], answer, Post(f"/webhooks/{NAME}", asked, ())),
        )

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[FeishuWebhook]:
        async with open_feishu() as fake:
            yield cls(fake)

    def blocks(self, *secrets: str) -> dict[str, Any]:
        return block(self.fake, *secrets)

    def post(self, body: bytes, secret: str, *, ahead: int = 0) -> Post:
        secret_body = encrypted(body, secret)
        return Post(f"/webhooks/{NAME}", secret_body, tuple(signed(secret_body, secret, ahead=ahead).items()))


class FeishuConnection(Told, Held):
    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[FeishuConnection]:
        async with open_feishu() as fake:
            yield cls(fake)

    def blocks(self) -> dict[str, Any]:
        return block(self.fake)

    async def bring(self, *payloads: Any) -> None:
        await self.fake.bring(*payloads)

    async def bring_raw(self, body: bytes) -> None:
        await self.fake.bring_raw(body)

    def unconfirmed(self) -> NotHere:
        return NotHere("what is in the spool is acknowledged, within the three seconds that Feishu gives")


class OpenApiCase(Outgoing):
    platform = NAME
    secrets = (APP_SECRET, "canary7f3a9c")
    source = Source(NAME, CHATS[0], user=PEOPLE[0], scope="tk1")
    threaded = Source(NAME, "oc_group", "group", user=PEOPLE[0], scope="tk1", thread="omt_1")
    pointing = (Source(NAME, "oc_group", "group", user=PEOPLE[0], scope="tk1"), "om_asked")
    media = Media("https://files.example/a.png", "image/png", "a.png")
    gains_buttons = NotHere("a message of rich text cannot become a card")

    def __init__(self, fake: FakeFeishu) -> None:
        fake.messages |= {
            "om_asked": {"chat": "oc_group", "thread": None},
            "om_topic": {"chat": "oc_group", "thread": "omt_1"},
        }
        self.fake = fake
        self.api_url = fake.url
        self.refused = _refusal(230002)
        self.denied = _refusal(99991672)
        self.markup_refused = _refusal(230001)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[OpenApiCase]:
        async with open_feishu() as fake:
            yield cls(fake)

    def blocks(self, api_url: str, seconds: float = SEND_SECONDS) -> dict[str, Any]:
        return block(self.fake, api_url=api_url, send_timeout_seconds=seconds)

    def is_send(self, method: str, path: str) -> bool:
        return method in ("POST", "PUT", "PATCH") and path.startswith("/open-apis/im/v1/messages")

    def busy(self, seconds: int) -> Answer:
        return _refusal(99991400, 429, ("x-ogw-ratelimit-reset", str(seconds)))

    def shown(self) -> list[Shown]:
        return [
            Shown(
                "" if message["href"] else message["text"],
                message["id"],
                message["thread"],
                message["answers"] if message["thread"] is None else None,
                message["href"],
                [(label, value["command"]) for label, value in message.get("buttons", ())],
            )
            for message in self.fake.shown
        ]

    def vanish(self, shown: Shown) -> None:
        self.fake.shown[:] = [message for message in self.fake.shown if message["id"] != shown.id]


def _refusal(code: int, status: int = 400, *headers: tuple[str, str]) -> Answer:
    body = orjson.dumps({"code": code, "msg": f"refused {code}"})
    return Answer(status, body, (("content-type", "application/json"), *headers))


def heard(payload: dict[str, Any]) -> Heard:
    return normalise(opened([b"test key"], payload), FeishuBot(APP_ID, BOT, "Helper"), received_at=1_000)


RECEIVING = (FeishuWebhook, FeishuConnection)
SENDING = OpenApiCase
