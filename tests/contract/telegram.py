"""Telegram's contract: told by webhook, asked by polling, answered through the Bot API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import orjson
from pydantic import SecretStr

from producers.heard import Heard
from producers.telegram.normalise import TelegramMe, normalise
from shared.messages import Media, Source
from shared.platforms.telegram import NAME, TelegramSettings
from tests.contract.case import SEND_SECONDS, Answer, Held, Incoming, NotHere, Outgoing, Post, Shown, Webhook
from tests.support.telegram import BOT, TOKEN, FakeTelegram, open_telegram

ANN, GROUP, TOPIC = 11, -1001500, 12
SECRETS = ("canary-hook-secret_1", "canary-hook-secret_2")
HEADER = "x-telegram-bot-api-secret-token"


def block(fake: FakeTelegram, *secrets: str, **changes: Any) -> dict[str, Any]:
    values = {"token": SecretStr(TOKEN), "api_url": fake.url, "allowed_users": (str(ANN), "12"), **changes}
    return {NAME: TelegramSettings(webhook_secret=tuple(SecretStr(secret) for secret in secrets), **values)}


def update(id: int, user: int, **message: Any) -> dict[str, Any]:
    """Somebody writes to the bot, in the chat that is theirs alone."""
    said = {
        "message_id": id,
        "date": 1767225600,
        "from": {"id": user, "is_bot": False, "first_name": "Ann", "username": "annli", "language_code": "en"},
        "chat": {"id": user, "type": "private", "first_name": "Ann"},
        "entities": [{"type": "bold", "offset": 0, "length": 1}],
    }
    return {"update_id": 800_000_000 + id, "message": {**said, **message}}


class Updates(Incoming):
    """What Telegram tells, however it comes."""

    platform = NAME
    own = update(901, ANN, **{"from": BOT, "text": "hello"})
    shapeless = (
        {"update_id": 800_000_911, "message": []},
        {"update_id": 800_000_912, "message": {"chat": 1}},
        update(913, ANN, text=5),
    )
    transport_fields = frozenset({"update_id"})

    def __init__(self, fake: FakeTelegram) -> None:
        self.fake = fake
        self.others = {
            "an edit": {"update_id": 800_000_902, "edited_message": update(1, ANN, text="hello")["message"]},
            "a member came": update(903, ANN, new_chat_members=[{"id": 5, "is_bot": False, "first_name": "Bob"}]),
            "a button": {"update_id": 800_000_904, "callback_query": {"id": "1", "from": {"id": ANN}, "data": "x"}},
        }

    def said(self, text: str, *, id: int, chat: int = 1) -> Any:
        return update(id, ANN - 1 + chat, text=text)

    def said_by_stranger(self, text: str, *, id: int) -> Any:
        return update(id, 666, text=text)

    def pressed(self, data: str, *, id: int, by_stranger: bool = False) -> Any:
        below = update(id, 666 if by_stranger else ANN, text="Well?")["message"]
        query = {"id": f"43{id}", "from": below["from"], "chat_instance": "-1", "data": data}
        return {"update_id": 800_100_000 + id, "callback_query": {**query, "message": {**below, "from": BOT}}}


class TelegramWebhook(Updates, Webhook):
    secrets = SECRETS
    proofs = (HEADER,)
    oldest_seconds = NotHere("Telegram signs nothing: its secret stands in a header")

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[TelegramWebhook]:
        async with open_telegram() as fake:
            yield cls(fake)

    def blocks(self, *secrets: str) -> dict[str, Any]:
        return block(self.fake, *secrets)

    def post(self, body: bytes, secret: str, *, ahead: int = 0) -> Post:
        return Post(f"/webhooks/{NAME}", body, ((HEADER, secret),))


class TelegramPolling(Updates, Held):
    """Update ids grow, and one that was confirmed never comes again: so each thing that is brought gets the next id, but
    for what cannot be understood, which is known by it."""

    def __init__(self, fake: FakeTelegram) -> None:
        super().__init__(fake)
        self._ids = count(810_000_000)
        self._shapeless: dict[bytes, int] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[TelegramPolling]:
        async with open_telegram() as fake:
            yield cls(fake)

    def blocks(self) -> dict[str, Any]:
        return block(self.fake)

    async def bring(self, *payloads: Any) -> None:
        for payload in payloads:
            id, known = next(self._ids), orjson.dumps(payload)
            if known in self._shapeless and self._shapeless[known] not in self.fake.pending():
                continue  # confirmed: Telegram does not bring it again
            if payload in self.shapeless:
                id = self._shapeless.setdefault(known, id)
            await self.fake.bring({**payload, "update_id": id})

    async def bring_raw(self, body: bytes) -> None:
        """An update whose text is none: the answer that holds it cannot be parsed."""
        id = next(self._ids)
        self.fake.spoiled[b'"SPOILED %d"' % id] = body
        await self.fake.bring({**update(1, ANN, text=f"SPOILED {id}"), "update_id": id})

    def unconfirmed(self) -> int:
        return len(self.fake.pending())


class BotApiCase(Outgoing):
    platform = NAME
    secrets = (TOKEN, TOKEN.partition(":")[2])
    source = Source(NAME, str(ANN), user=str(ANN))
    threaded = Source(NAME, str(GROUP), "group", user=str(ANN), thread=str(TOPIC))
    pointing = (Source(NAME, str(GROUP), "group", user=str(ANN)), "55")
    media = Media("https://files.example/a.png", "image/png", "a.png")

    def __init__(self, fake: FakeTelegram) -> None:
        fake.topics.add((GROUP, TOPIC))
        self.fake = fake
        self.api_url = fake.url
        self.refused = _refusal(403, "Forbidden: bot was blocked by the user")
        self.denied = _refusal(401, "Unauthorized")
        self.markup_refused = _refusal(400, "Bad Request: can't parse entities: whatever")

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[BotApiCase]:
        async with open_telegram() as fake:
            yield cls(fake)

    def blocks(self, api_url: str, seconds: float = SEND_SECONDS) -> dict[str, Any]:
        return block(self.fake, api_url=api_url, send_timeout_seconds=seconds)

    def is_send(self, method: str, path: str) -> bool:
        return path.endswith(("/sendMessage", "/sendPhoto", "/editMessageText"))

    def busy(self, seconds: int) -> Answer:
        return _refusal(429, f"Too Many Requests: retry after {seconds}", parameters={"retry_after": seconds})

    def shown(self) -> list[Shown]:
        sent = {message["message_id"]: message for messages in self.fake.shown.values() for message in messages}
        pointed = {  # the fake numbers messages by its calls
            1000 + n: call.fields.get("reply_parameters", {}).get("message_id")
            for n, call in enumerate(self.fake.calls, 1)
        }
        return [
            Shown(
                message.get("text", ""),
                str(id),
                str(message["message_thread_id"]) if "message_thread_id" in message else None,
                str(pointed[id]) if pointed[id] is not None else None,
                message["photo"][0]["file_id"] if "photo" in message else None,
                [
                    (button["text"], button["callback_data"])
                    for row in message.get("reply_markup", {}).get("inline_keyboard", ())
                    for button in row
                ],
            )
            for id, message in sorted(sent.items())
        ]

    def vanish(self, shown: Shown) -> None:
        for messages in self.fake.shown.values():
            messages[:] = [message for message in messages if str(message["message_id"]) != shown.id]


def _refusal(code: int, text: str, **more: Any) -> Answer:
    body = orjson.dumps({"ok": False, "error_code": code, "description": text, **more})
    return Answer(code, body, (("content-type", "application/json"),))


def heard(payload: dict[str, Any]) -> Heard:
    return normalise(payload, TelegramMe("99", "helper_bot"), received_at=1_000)


RECEIVING = (TelegramWebhook, TelegramPolling)
SENDING = BotApiCase
