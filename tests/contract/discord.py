"""Discord's contract: messages by the gateway, interactions by webhook, answers through the HTTP API."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from nacl.signing import SigningKey
from pydantic import SecretStr

from producers.discord.normalise import normalise
from producers.heard import Heard
from shared.messages import Media, Source
from shared.platforms.discord import NAME, DiscordSettings
from tests.contract.case import SEND_SECONDS, Answer, Handshake, Held, NotHere, Outgoing, Post, Shown, Webhook
from tests.support.discord import ME, TOKEN, FakeDiscord, a_message, open_discord

ANN, BOB = "42", "43"
SECRETS = ("1" * 64, "2" * 64)  # seeds of signing keys: the application's own, and a stranger's
SIGNATURE, TIMESTAMP = "x-signature-ed25519", "x-signature-timestamp"
CHANNEL, THREAD = "1300", "1310"


def block(fake: FakeDiscord, *secrets: str, **changes: Any) -> dict[str, Any]:
    values = {"token": SecretStr(TOKEN), "api_url": fake.url, "allowed_users": (ANN, BOB), **changes}
    keys = [SigningKey(bytes.fromhex(secret)).verify_key.encode().hex() for secret in secrets]
    return {NAME: DiscordSettings(public_key=keys[0] if keys else None, **values)}


def person(id: str) -> dict[str, Any]:
    return {"id": id, "username": "annli", "global_name": "Ann", "discriminator": "0", "avatar": None, "bot": False}


def interaction(id: int, user: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Somebody asks something, in the chat that is theirs alone."""
    options = [{"name": "text", "type": 3, "value": "hello"}]
    return {
        "id": str(id),
        "application_id": "99",
        "type": 2,
        "token": f"token-{id}",
        "channel_id": f"15{user['id']}",
        "channel": {"id": f"15{user['id']}", "type": 1},
        "context": 1,
        "user": user,
        "data": {"id": "600", "name": "ask", "type": 1, "options": options},
        **changes,
    }


def asking(text: str) -> dict[str, Any]:
    return {"id": "600", "name": "ask", "type": 1, "options": [{"name": "text", "type": 3, "value": text}]}


def heard(payload: dict[str, Any]) -> Heard:
    return normalise(payload, received_at=1_000)


class Interactions(Webhook):
    platform = NAME
    secrets = SECRETS
    proofs = (SIGNATURE, TIMESTAMP)
    oldest_seconds = 300
    rotates = NotHere("an application has one public key, which Discord does not change")
    own = interaction(901, ME)
    shapeless = (
        interaction(911, person(ANN), data=[]),
        interaction(912, person(ANN), token="a/b"),
        interaction(913, person(ANN), channel_id=5),
    )

    def __init__(self, fake: FakeDiscord) -> None:
        self.fake = fake
        self.others = {
            "a button": interaction(902, person(ANN), type=3, data={"custom_id": "yes", "component_type": 2}),
            "completing": interaction(903, person(ANN), type=4),
            "a form": interaction(904, person(ANN), type=5, data={"custom_id": "form", "components": []}),
            "a menu": interaction(905, person(ANN), data={"id": "1", "name": "Explain", "type": 3, "target_id": "1"}),
        }
        ping = orjson.dumps({"id": "1", "application_id": "99", "type": 1, "version": 1})
        self.handshakes = (Handshake(self.post(ping, SECRETS[0]), b'{"type":1}', self.post(ping, SECRETS[1])),)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Interactions]:
        async with open_discord() as fake:
            yield cls(fake)

    def blocks(self, *secrets: str) -> dict[str, Any]:
        return block(self.fake, *secrets)

    def post(self, body: bytes, secret: str, *, ahead: int = 0) -> Post:
        at = str(int(time.time()) + ahead)
        signature = SigningKey(bytes.fromhex(secret)).sign(at.encode() + body).signature.hex()
        return Post(f"/webhooks/{NAME}", body, ((SIGNATURE, signature), (TIMESTAMP, at)))

    def said(self, text: str, *, id: int, chat: int = 1) -> Any:
        return interaction(id, person(str(41 + chat)), data=asking(text))

    def said_by_stranger(self, text: str, *, id: int) -> Any:
        return interaction(id, person("666"), data=asking(text))

    def pressed(self, data: str, *, id: int, by_stranger: bool = False) -> Any:
        return press(id, person("666" if by_stranger else ANN), data)


def dispatch(id: int, user: dict[str, Any], text: Any = "hello", **changes: Any) -> dict[str, Any]:
    message = a_message(str(id), f"15{user['id']}", text, user, channel_type=1)
    return {"t": "MESSAGE_CREATE", "d": {**message, **changes}}


class GatewayMessages(Held):
    platform = NAME
    own = dispatch(901, ME)
    shapeless = (
        {"t": "MESSAGE_CREATE", "d": []},
        dispatch(912, person(ANN), author=5),
        dispatch(913, person(ANN), 5),
    )

    def __init__(self, fake: FakeDiscord) -> None:
        self.fake = fake
        self.others = {
            "an edit": {**dispatch(902, person(ANN)), "t": "MESSAGE_UPDATE"},
            "a member came": dispatch(903, person(ANN), "", type=7),
            "a webhook": dispatch(904, person(ANN), webhook_id="77"),
            "typing": {"t": "TYPING_START", "d": {"channel_id": "1542", "user_id": ANN, "timestamp": 1}},
        }

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[GatewayMessages]:
        async with open_discord() as fake:
            yield cls(fake)

    def blocks(self) -> dict[str, Any]:
        return block(self.fake)

    async def bring(self, *payloads: Any) -> None:
        await self.fake.until(lambda fake: fake.live)
        for payload in payloads:
            await self.fake.happen(payload["t"], payload["d"])

    async def bring_raw(self, body: bytes) -> None:
        await self.fake.until(lambda fake: fake.live)
        for link in self.fake.live:
            await link.socket.send_bytes(body)

    def unconfirmed(self) -> NotHere:
        return NotHere("a session that is gone brings nothing again: the spool keeps what came")

    def said(self, text: str, *, id: int, chat: int = 1) -> Any:
        return dispatch(id, person(str(41 + chat)), text)

    def said_by_stranger(self, text: str, *, id: int) -> Any:
        return dispatch(id, person("666"), text)

    def pressed(self, data: str, *, id: int, by_stranger: bool = False) -> Any:
        return {"t": "INTERACTION_CREATE", "d": press(id, person("666" if by_stranger else ANN), data)}


class DiscordApiCase(Outgoing):
    platform = NAME
    secrets = (TOKEN, TOKEN.rpartition(".")[2])
    source = Source(NAME, "1542", user=ANN)
    threaded = Source(NAME, CHANNEL, "thread", user=ANN, thread=THREAD, scope="1200")
    pointing = (Source(NAME, CHANNEL, "channel", user=ANN, scope="1200"), "1399")
    media = Media("https://files.example/a.png", "image/png", "a.png")
    markup_refused = NotHere("Discord shows Markdown as it is")

    def __init__(self, fake: FakeDiscord) -> None:
        self.fake = fake
        self.api_url = fake.url
        self.refused = _answer(403, 50007, "Cannot send messages to this user")
        self.denied = _answer(401, 0, "401: Unauthorized")

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[DiscordApiCase]:
        async with open_discord() as fake:
            yield cls(fake)

    def blocks(self, api_url: str, seconds: float = SEND_SECONDS) -> dict[str, Any]:
        return block(self.fake, api_url=api_url, send_timeout_seconds=seconds)

    def is_send(self, method: str, path: str) -> bool:
        return "/messages" in path

    def busy(self, seconds: int) -> Answer:
        return _answer(429, 0, "You are being rate limited.", retry_after=float(seconds), **{"global": False})

    def shown(self) -> list[Shown]:
        messages = [message for there in self.fake.shown.values() for message in there]
        return [_shown(message) for message in sorted(messages, key=lambda message: int(message["id"]))]

    def vanish(self, shown: Shown) -> None:
        for messages in self.fake.shown.values():
            messages[:] = [message for message in messages if message["id"] != shown.id]


def _shown(message: dict[str, Any]) -> Shown:
    """A text comes without previews; a message that is only an address, and may have one, is a file."""
    is_file = not message["flags"]
    return Shown(
        "" if is_file else message["content"],
        message["id"],
        THREAD if message["channel_id"] == THREAD else None,
        message.get("message_reference", {}).get("message_id"),
        message["content"] if is_file else None,
        buttons_of(message),
    )


def buttons_of(message: dict[str, Any]) -> list[tuple[str, str]]:
    """The words on the buttons of a message, and the data of each."""
    buttons = [button for row in message["components"] for button in row["components"]]
    return [(button["label"], button["custom_id"]) for button in buttons]


def press(id: int, user: dict[str, Any], data: str, **changes: Any) -> dict[str, Any]:
    """Somebody presses a button below a message of the bot's, in the chat that is theirs alone."""
    below = a_message("1399", f"15{user['id']}", "Well?", ME)
    pressed = {"type": 3, "data": {"custom_id": data, "component_type": 2}, "message": below}
    return interaction(id, user, **{**pressed, **changes})


def _answer(status: int, code: int, text: str, **more: Any) -> Answer:
    body = orjson.dumps({"code": code, "message": text, **more})
    return Answer(status, body, (("content-type", "application/json"),))


RECEIVING = (Interactions, GatewayMessages)
SENDING = DiscordApiCase
